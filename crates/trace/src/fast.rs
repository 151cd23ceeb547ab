//! Maps with a quick hash: keys come from a file that only its owner reads.

/// The quick hash.
pub type Hash = foldhash::fast::FixedState;
/// A map.
pub type Map<K, V> = std::collections::HashMap<K, V, Hash>;
/// A set.
pub type Set<K> = std::collections::HashSet<K, Hash>;

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
