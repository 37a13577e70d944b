//! JSON read in one pass and never kept: whoever knows the shape takes what it wants, the rest is only looked through.

use crate::sys::find_byte;
use std::borrow::Cow;

const DEPTH: usize = 64;

/// These bytes are not JSON, or not of the shape that was asked for.
#[derive(Debug, PartialEq)]
pub struct Bad;

pub struct Scan<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Scan { data, at: 0 }
    }

    #[inline]
    fn peek(&mut self) -> Result<u8, Bad> {
        loop {
            match self.data.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(Bad),
            }
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), Bad> {
        if self.peek()? != byte {
            return Err(Bad);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether another member follows: a comma, or the end.
    #[inline]
    fn more(&mut self, close: u8) -> Result<bool, Bad> {
        let byte = self.peek()?;
        self.at += 1;
        if byte != b',' && byte != close {
            return Err(Bad);
        }
        Ok(byte == b',')
    }

    /// Hand each member's key to `each`, which must take the value.
    #[inline]
    pub fn object(&mut self, mut each: impl FnMut(&mut Self, &'a [u8]) -> Result<(), Bad>) -> Result<(), Bad> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            each(self, key)?;
            if !self.more(b'}')? {
                return Ok(());
            }
        }
    }

    /// Call `each` at every element, which it must take.
    #[inline]
    pub fn array(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            each(self)?;
            if !self.more(b']')? {
                return Ok(());
            }
        }
    }

    /// A string as it is written, escapes and all.
    #[inline]
    pub fn string(&mut self) -> Result<&'a [u8], Bad> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.quote_or_backslash()? {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.data[start..self.at - 1]);
                }
                _ => self.at += 2,
            }
        }
    }

    /// Go on to the next of the two: eight bytes at a time, since most strings are too short for anything larger.
    #[inline]
    fn quote_or_backslash(&mut self) -> Result<u8, Bad> {
        while let Some(word) = self.data.get(self.at..self.at + 8) {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            let word = u64::from_le_bytes(eight);
            let found = bytes_like(word, b'"') | bytes_like(word, b'\\');
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return Ok(self.data[self.at]);
            }
            self.at += 8;
        }
        loop {
            match self.data.get(self.at) {
                Some(&byte @ (b'"' | b'\\')) => return Ok(byte),
                Some(_) => self.at += 1,
                None => return Err(Bad),
            }
        }
    }

    /// A string, or nothing where there is a null.
    #[inline]
    pub fn text(&mut self) -> Result<Option<&'a [u8]>, Bad> {
        if self.peek()? == b'n' {
            self.skip()?;
            return Ok(None);
        }
        self.string().map(Some)
    }

    /// Whether the value is an object; a null, say, is skipped by the caller.
    pub fn is_object(&mut self) -> bool {
        self.peek() == Ok(b'{')
    }

    pub fn is_array(&mut self) -> bool {
        self.peek() == Ok(b'[')
    }

    pub fn is_true(&mut self) -> Result<bool, Bad> {
        let yes = self.peek()? == b't';
        self.skip()?;
        Ok(yes)
    }

    /// A number without sign or fraction; nothing for any other value.
    pub fn number(&mut self) -> Result<Option<u64>, Bad> {
        self.peek()?;
        let start = self.at;
        self.skip()?;
        Ok(std::str::from_utf8(&self.data[start..self.at]).ok().and_then(|text| text.parse().ok()))
    }

    /// Look through one value.
    pub fn skip(&mut self) -> Result<(), Bad> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: usize) -> Result<(), Bad> {
        if depth > DEPTH {
            return Err(Bad);
        }
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|inner, _| inner.skip_at(depth + 1)),
            b'[' => self.array(|inner| inner.skip_at(depth + 1)),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.digits(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Bad> {
        if !self.data[self.at..].starts_with(word) {
            return Err(Bad);
        }
        self.at += word.len();
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Bad> {
        let start = self.at;
        let mut plain = true;
        while let Some(byte @ (b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) = self.data.get(self.at) {
            plain &= byte.is_ascii_digit();
            self.at += 1;
        }
        if plain && self.at > start {
            return Ok(());
        }
        let text = std::str::from_utf8(&self.data[start..self.at]).map_err(|_| Bad)?;
        text.parse::<f64>().map(|_| ()).map_err(|_| Bad)
    }

    /// Nothing but white space may follow.
    pub fn end(mut self) -> Result<(), Bad> {
        match self.peek() {
            Err(Bad) => Ok(()),
            Ok(_) => Err(Bad),
        }
    }
}

/// Of the bytes of `word` that are `byte`, the lowest has its highest bit set in the result; no lower one has.
#[inline]
fn bytes_like(word: u64, byte: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zero = word ^ (ONES * u64::from(byte));
    zero.wrapping_sub(ONES) & !zero & (ONES << 7)
}

/// The text of a string as it was written; halves of surrogate pairs are not paired, since nobody here sends them.
pub fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if find_byte(raw, b'\\').is_none() {
        return Cow::Borrowed(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let escape = rest.first().copied().unwrap_or(b'\\');
        rest = rest.get(1..).unwrap_or_default();
        match escape {
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'u' => {
                let digits = rest.get(..4).and_then(|hex| std::str::from_utf8(hex).ok());
                let point = digits.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0xFFFD);
                let mut utf8 = [0; 4];
                let letter = char::from_u32(point).unwrap_or('\u{FFFD}');
                text.extend_from_slice(letter.encode_utf8(&mut utf8).as_bytes());
                rest = rest.get(4..).unwrap_or_default();
            }
            other => text.push(other),
        }
    }
    Cow::Owned(text)
}

/// `text` as a JSON string, quotes included.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            '\n' => out.push_str("\\n"),
            control if (control as u32) < 32 => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<(), Bad> {
        let mut scan = Scan::new(text.as_bytes());
        scan.skip()?;
        scan.end()
    }

    #[test]
    fn takes_json_and_nothing_else() {
        for good in ["{}", "[]", " {\"a\": [1, -2.5e3, true, false, null, \"x\\\"y\\\\\"], \"b\":{}} ", "\"\"", "0"] {
            assert_eq!(whole(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "[1,]",
            "[1 2]",
            "\"open",
            "\"open\\\"",
            "nul",
            "{} {}",
            "--",
            "{\"a\":1,}",
        ] {
            assert_eq!(whole(bad), Err(Bad), "{bad}");
        }
        assert_eq!(whole(&"[".repeat(100_000)), Err(Bad));
    }

    #[test]
    fn any_beginning_of_a_value_is_no_value() {
        let text = "{\"a\": [1, {\"b\": \"c\\\\\"}], \"d\": \"0123456789012345678901234567890123456789\\\"\"}";
        assert_eq!(whole(text), Ok(()));
        for cut in 0..text.len() {
            assert_eq!(whole(&text[..cut]), Err(Bad), "{cut}");
        }
    }

    #[test]
    fn a_string_ends_at_its_quote_wherever_that_is() {
        for before in 0..20 {
            for after in 0..20 {
                let inner = format!("{}\\\"{}\\\\", "a".repeat(before), "\u{e9}".repeat(after));
                let text = format!("[\"{inner}\",\"\"]");
                let mut strings = Vec::new();
                let taken = Scan::new(text.as_bytes()).array(|scan| {
                    strings.push(scan.string()?);
                    Ok(())
                });
                assert_eq!((taken, &strings[..]), (Ok(()), &[inner.as_bytes(), b""][..]), "{text}");
            }
        }
    }

    #[test]
    fn strings_are_handed_out_as_written_and_can_be_read() {
        let mut scan = Scan::new(b"\"a\\u0022\\n\\\"\\/\\\\\"");
        let raw = scan.string().unwrap();
        assert_eq!(&unescaped(raw)[..], b"a\"\n\"/\\");
        assert_eq!(quoted("a\"\n\u{1}"), "\"a\\\"\\n\\u0001\"");
    }
}
