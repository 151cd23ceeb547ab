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

    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The next byte that is no space, which must be `byte`.
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
    pub fn string(&mut self) -> Found<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
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
    pub fn word(&mut self) -> Found<&'a [u8]> {
        self.space();
        let start = self.at;
        while let Some(c) = self.peek()
            && !matches!(c, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b'"' | b'{' | b'[' | b':')
        {
            self.at += 1;
        }
        if self.at == start { Err(Broken) } else { Ok(&self.text[start..self.at]) }
    }

    /// Any value, skipped; gives its text.
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
        loop {
            match self.peek() {
                None => return Err(Broken),
                Some(b'"') => {
                    self.string()?;
                }
                Some(c) => {
                    self.at += 1;
                    match c {
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            if depth == 0 {
                                return Ok(());
                            }
                        }
                        _ => self.plain(),
                    }
                }
            }
        }
    }

    /// Runs over digits and commas up to something that matters.
    fn plain(&mut self) {
        while let Some(c) = self.peek()
            && !matches!(c, b'"' | b'{' | b'}' | b'[' | b']')
        {
            self.at += 1;
        }
    }

    /// The next entry of an object after its opening brace; `None` at its end. The value comes next.
    pub fn key(&mut self) -> Found<Option<&'a [u8]>> {
        self.space();
        if self.take(b'}') {
            return Ok(None);
        }
        self.take(b',');
        self.space();
        if self.take(b'}') {
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }
}

/// The first `{` of an event after `from`: one that its phase follows soon. For going on behind a
/// broken place, and for cutting a text into parts.
pub fn next_event(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let i = memchr::memmem::find(text.get(from..)?, b"\"ph\"")?;
        let ph = from + i;
        let open = text[..ph].iter().rposition(|c| *c == b'{');
        if let Some(open) = open
            && open >= from.saturating_sub(1 << 16)
            && text[open + 1..ph].iter().all(u8::is_ascii_whitespace)
        {
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
