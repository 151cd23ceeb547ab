//! Values spelt as Python prints them, for tables that Python programs read.

use crate::scan::{Cursor, unescaped};

/// A JSON value as Python's `repr`, lists as tuples: `((1, 2), ())`.
pub fn literal(json: &[u8]) -> String {
    let mut out = String::new();
    spell(&mut Cursor::new(json, 0), &mut out, true, 0);
    out
}

/// The same with lists as lists: `[[1, 2], []]`.
pub fn list_literal(json: &[u8]) -> String {
    let mut out = String::new();
    spell(&mut Cursor::new(json, 0), &mut out, false, 0);
    out
}

/// Deeper than any argument list.
const DEEPEST: usize = 32;

fn spell(cursor: &mut Cursor, out: &mut String, tuples: bool, depth: usize) {
    cursor.space();
    match cursor.peek() {
        Some(b'[') if depth < DEEPEST => {
            cursor.at += 1;
            out.push(if tuples { '(' } else { '[' });
            let mut count = 0;
            loop {
                cursor.space();
                if cursor.take(b']') || cursor.peek().is_none() {
                    break;
                }
                if count > 0 {
                    cursor.take(b',');
                    out.push_str(", ");
                }
                let before = cursor.at;
                spell(cursor, out, tuples, depth + 1);
                if cursor.at == before {
                    break;
                }
                count += 1;
            }
            out.push_str(match tuples {
                true if count == 1 => ",)",
                true => ")",
                false => "]",
            });
        }
        Some(b'"') => match cursor.string() {
            Ok(raw) => quote(&unescaped(raw), out),
            Err(_) => cursor.at = cursor.text.len(),
        },
        _ => match cursor.value() {
            Ok(b"true") => out.push_str("True"),
            Ok(b"false") => out.push_str("False"),
            Ok(b"null") => out.push_str("None"),
            Ok(word) => out.push_str(&String::from_utf8_lossy(word)),
            Err(_) => cursor.at = cursor.text.len(),
        },
    }
}

/// A text in quotes, single ones unless it has some itself.
pub fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push(mark);
}

/// A float: the shortest digits that read back as it.
pub fn float(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        return "nan".into();
    }
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, size) = exponent.strip_prefix('-').map_or(('+', exponent), |size| ('-', size));
        return format!("{digits}e{sign}{size:0>2}");
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_tuples() {
        assert_eq!(literal(b"[[8944, 1024], [], [3]]"), "((8944, 1024), (), (3,))");
        assert_eq!(
            literal(br#"["c10::BFloat16", "", "it's", true, null, 0.5]"#),
            r#"('c10::BFloat16', '', "it's", True, None, 0.5)"#
        );
        assert_eq!(literal(b"[[1, [2"), "((1, (2,),),)".replace(",),),)", ",)),)"));
    }

    #[test]
    fn floats_are_spelt_as_python_does() {
        for (value, text) in [(1.0, "1.0"), (1e-5, "1e-05"), (0.1, "0.1"), (1e16, "1e+16"), (123456.789, "123456.789")]
        {
            assert_eq!(float(value), text);
        }
    }
}
