//! Maps with a quick hash: keys come from a file that only its owner reads.

/// A map.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
/// A set.
pub type Set<K> = std::collections::HashSet<K, foldhash::fast::FixedState>;

/// Texts, each with a number.
#[derive(Default)]
pub struct Texts<'a> {
    /// By number.
    pub list: Vec<&'a [u8]>,
    number: Map<&'a [u8], u32>,
}

impl<'a> Texts<'a> {
    /// The number of a text, new or known.
    pub fn number(&mut self, text: &'a [u8]) -> u32 {
        *self.number.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() as u32 - 1
        })
    }
}
