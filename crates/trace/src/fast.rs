//! Maps with a quick hash: keys come from a file that only its owner reads.

use std::sync::Arc;

/// The quick hash.
pub type Hash = foldhash::fast::FixedState;
/// A map.
pub type Map<K, V> = std::collections::HashMap<K, V, Hash>;
/// A set.
pub type Set<K> = std::collections::HashSet<K, Hash>;
/// A text of the file, as written, escapes and all.
pub type Text = Arc<[u8]>;

/// Keys, each with a number in order of first appearance.
pub struct Numbers<K> {
    /// By number.
    pub list: Vec<K>,
    number: Map<K, u32>,
}

impl<K> Default for Numbers<K> {
    fn default() -> Numbers<K> {
        Numbers { list: Vec::new(), number: Map::default() }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Numbers<K> {
    /// The number of a key, new or known.
    #[inline]
    pub fn of(&mut self, key: K) -> u32 {
        *self.number.entry(key).or_insert_with(|| {
            self.list.push(key);
            self.list.len() as u32 - 1
        })
    }
}

/// Texts that outlive the file, each kept once.
#[derive(Default)]
pub struct Texts {
    /// By number.
    pub list: Vec<Text>,
    number: Map<Text, u32>,
}

impl Texts {
    /// The number of a text, new or known.
    pub fn of(&mut self, text: &[u8]) -> u32 {
        if let Some(&known) = self.number.get(text) {
            return known;
        }
        let own: Text = text.into();
        self.list.push(own.clone());
        self.number.insert(own, self.list.len() as u32 - 1);
        self.list.len() as u32 - 1
    }
}
