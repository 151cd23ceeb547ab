//! A cursor over JSON text that never builds a tree: it skips, or gives slices of the text.
//!
//! It is lenient where real traces need it: control characters and bytes that are no UTF-8 may stand
//! in strings, and a value that is not asked for is skipped by its brackets alone.

use memchr::memchr;

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
        loop {
            let Some(word) = self.eight() else { return self.short_string(start) };
            let marks = zeros(word ^ QUOTES) | zeros(word ^ BACKSLASHES);
            if marks == 0 {
                self.at += 8;
                continue;
            }
            let mark = self.at + (marks.trailing_zeros() / 8) as usize;
            if self.text[mark] == b'"' {
                self.at = mark + 1;
                return Ok(&self.text[start..mark]);
            }
            self.at = (mark + 2).min(self.text.len());
        }
    }

    /// The same where fewer than eight bytes are left.
    fn short_string(&mut self, start: usize) -> Found<&'a [u8]> {
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                b'"' => return Ok(&self.text[start..self.at - 1]),
                b'\\' => self.at += 1,
                _ => {}
            }
        }
        Err(Broken)
    }

    /// The next eight bytes, the first lowest.
    #[inline]
    fn eight(&self) -> Option<u64> {
        let bytes = self.text.get(self.at..self.at + 8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
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
        self.at += 1;
        self.close()
    }

    /// Past the closing bracket of what is open, whatever is left inside.
    pub fn close(&mut self) -> Found<()> {
        let mut depth = 1usize;
        'words: while let Some(word) = self.eight() {
            let lower = word | SPACES;
            let mut marks = zeros(word ^ QUOTES) | zeros(lower ^ BRACES) | zeros(lower ^ BRACES_CLOSED);
            while marks != 0 {
                let mark = self.at + (marks.trailing_zeros() / 8) as usize;
                marks &= marks - 1;
                match CLASS[self.text[mark] as usize] {
                    QUOTE => {
                        self.at = mark;
                        self.string()?;
                        continue 'words;
                    }
                    OPEN => depth += 1,
                    _ => depth -= 1,
                }
                if depth == 0 {
                    self.at = mark + 1;
                    return Ok(());
                }
            }
            self.at += 8;
        }
        self.close_near(depth)
    }

    /// The same where fewer than eight bytes are left.
    fn close_near(&mut self, mut depth: usize) -> Found<()> {
        while let Some(c) = self.peek() {
            match CLASS[c as usize] {
                QUOTE => {
                    self.string()?;
                    continue;
                }
                OPEN => depth += 1,
                CLOSE => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(Broken)
    }

    /// To the next entry of an object or list, past a comma.
    #[inline]
    pub fn separator(&mut self) {
        self.space();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.space();
        }
    }

    /// The next entry of an object after its opening brace; `None` at its end. The value comes next.
    #[inline]
    pub fn key(&mut self) -> Found<Option<&'a [u8]>> {
        self.separator();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }
}

/// Eight times the same byte.
const fn eight_of(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

const QUOTES: u64 = eight_of(b'"');
const BACKSLASHES: u64 = eight_of(b'\\');
const SPACES: u64 = eight_of(b' ');
/// With the bit of a space set, `[` is `{` and `]` is `}`.
const BRACES: u64 = eight_of(b'{');
const BRACES_CLOSED: u64 = eight_of(b'}');

/// The highest bit of each byte that is zero, and no other bit.
#[inline]
const fn zeros(word: u64) -> u64 {
    const LOW: u64 = eight_of(0x7f);
    !(((word & LOW) + LOW) | word | LOW)
}

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

/// The text of a string with its escapes resolved; what is no UTF-8 becomes the replacement mark.
pub fn unescaped(raw: &[u8]) -> String {
    if memchr(b'\\', raw).is_none() {
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
