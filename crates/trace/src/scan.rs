//! A cursor over JSON text that never builds a tree: it skips, or gives slices of the text.
//!
//! It is lenient where real traces need it: control characters and bytes that are no UTF-8 may stand
//! in strings, and a value that is not asked for is skipped by its brackets alone.

use memchr::{memchr2, memchr3};

/// A place in the text.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

/// The text is no JSON here, or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

type Found<T> = Result<T, Broken>;

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { text, at }
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    pub fn space(&mut self) {
        while let Some(&c) = self.text.get(self.at)
            && CLASS[c as usize] == SPACE
        {
            self.at += 1;
        }
    }

    /// The next byte that is no space, which must be `byte`.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Found<()> {
        self.space();
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(Broken)
    }

    /// Takes `byte` if it is next.
    pub fn take(&mut self, byte: u8) -> bool {
        self.expect(byte).is_ok()
    }

    /// What stands between the quotes, escapes as they are written.
    #[inline]
    pub fn string(&mut self) -> Found<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        // Most are short: a search over wide registers pays later.
        let near = self.text.len().min(start + NEAR);
        while self.at < near {
            match self.text[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at - 1]);
                }
                b'\\' => break,
                _ => self.at += 1,
            }
        }
        self.long_string(start)
    }

    fn long_string(&mut self, start: usize) -> Found<&'a [u8]> {
        loop {
            let rest = &self.text[self.at..];
            match memchr2(b'"', b'\\', rest) {
                None => return Err(Broken),
                Some(i) if rest[i] == b'"' => {
                    let end = self.at + i;
                    self.at = end + 1;
                    return Ok(&self.text[start..end]);
                }
                Some(i) => self.at = (self.at + i + 2).min(self.text.len()),
            }
        }
    }

    /// A number, or a word like `true`.
    #[inline]
    pub fn word(&mut self) -> Found<&'a [u8]> {
        self.space();
        let start = self.at;
        while let Some(&c) = self.text.get(self.at)
            && CLASS[c as usize] == PLAIN
        {
            self.at += 1;
        }
        if self.at == start { Err(Broken) } else { Ok(&self.text[start..self.at]) }
    }

    /// Any value, skipped; gives its text.
    #[inline]
    pub fn value(&mut self) -> Found<&'a [u8]> {
        self.space();
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{' | b'[') => self.nested()?,
            _ => {
                self.word()?;
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// From an opening bracket past its closing one, however deep: no recursion.
    fn nested(&mut self) -> Found<()> {
        let mut depth = 0usize;
        while let Some(&c) = self.text.get(self.at) {
            match CLASS[c as usize] {
                QUOTE => {
                    self.string()?;
                    continue;
                }
                OPEN => depth += 1,
                CLOSE => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(());
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
        Err(Broken)
    }

    /// The next entry of an object after its opening brace; `None` at its end. The value comes next.
    #[inline]
    pub fn key(&mut self) -> Found<Option<&'a [u8]>> {
        self.space();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.space();
        }
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }
}

/// Bytes of a string looked at one by one.
const NEAR: usize = 24;

const PLAIN: u8 = 0;
const SPACE: u8 = 1;
const QUOTE: u8 = 2;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const POINT: u8 = 5;

/// What each byte means outside of a string.
const CLASS: [u8; 256] = {
    let mut class = [PLAIN; 256];
    class[b' ' as usize] = SPACE;
    class[b'\n' as usize] = SPACE;
    class[b'\r' as usize] = SPACE;
    class[b'\t' as usize] = SPACE;
    class[b'"' as usize] = QUOTE;
    class[b'{' as usize] = OPEN;
    class[b'[' as usize] = OPEN;
    class[b'}' as usize] = CLOSE;
    class[b']' as usize] = CLOSE;
    class[b',' as usize] = POINT;
    class[b':' as usize] = POINT;
    class
};

/// The first `{` of an event after `from`: one that its phase follows soon. For going on behind a
/// broken place, and for cutting a text into parts.
pub fn next_event(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let i = memchr::memmem::find(text.get(from..)?, b"\"ph\"")?;
        let ph = from + i;
        let open = text[from..ph].iter().rposition(|c| *c == b'{').map(|i| from + i);
        if let Some(open) = open.filter(|open| text[open + 1..ph].iter().all(u8::is_ascii_whitespace)) {
            return Some(open);
        }
        from = ph + 4;
    }
}

/// The text of a string with its escapes resolved; what is no UTF-8 becomes the replacement mark.
pub fn unescaped(raw: &[u8]) -> String {
    if memchr3(b'\\', b'\\', b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw).into_owned();
    }
    let quoted = [b"\"", raw, b"\""].concat();
    let text = String::from_utf8_lossy(&quoted).into_owned();
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    serde_json::from_str(&clean).unwrap_or_else(|_| String::from_utf8_lossy(raw).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_skipped_by_their_brackets() {
        let text = br#"{"a": [1, {"b": "]}\""}, 2], "c" : -1.5e3 , "d":"x"}"#;
        let mut cursor = Cursor::new(text, 1);
        let mut found = Vec::new();
        while let Some(key) = cursor.key().unwrap() {
            found.push((key, cursor.value().unwrap()));
        }
        assert_eq!(
            found,
            [(&b"a"[..], &br#"[1, {"b": "]}\""}, 2]"#[..]), (&b"c"[..], &b"-1.5e3"[..]), (&b"d"[..], &br#""x""#[..])]
        );
        assert_eq!(cursor.at, text.len());
    }

    #[test]
    fn a_text_that_ends_is_broken_not_a_panic() {
        let text = br#"{"a": [1, {"b": "x"}], "c": "\"#;
        for end in 0..text.len() {
            let mut cursor = Cursor::new(&text[..end], 0);
            assert!(cursor.value().is_err(), "{end}");
        }
    }

    #[test]
    fn deep_nesting_needs_no_stack() {
        let text = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
        assert_eq!(Cursor::new(&text, 0).value().map(<[u8]>::len), Ok(1 << 21));
    }
}
