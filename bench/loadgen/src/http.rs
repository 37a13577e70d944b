//! As much of HTTP/1.1 as both sides need: heads, and bodies by length, in chunks or until the connection ends.

use crate::sys::{find, find_byte};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// The first line, and the headers that say how a body is framed.
pub struct Head<'a> {
    pub line: &'a [u8],
    pub size: usize,
    pub framing: Option<Framing>,
    pub closes: bool,
    /// The body's media type, with whatever parameters it has.
    pub kind: &'a [u8],
}

/// The head at the start of `data`; nothing while it is not whole.
pub fn head(data: &[u8]) -> Option<Head<'_>> {
    let size = find(data, b"\r\n\r\n")? + 4;
    let end = find_byte(data, b'\r').unwrap_or(0);
    let mut found = Head { line: &data[..end], size, framing: None, closes: false, kind: b"" };
    let mut rest = &data[end + 2..size - 2];
    while let Some(stop) = find_byte(rest, b'\r') {
        let field = &rest[..stop];
        rest = rest.get(stop + 2..).unwrap_or_default();
        // Four names of these lengths matter; most others are known by their length.
        match field.iter().position(|&byte| byte == b':') {
            Some(14) if field[..14].eq_ignore_ascii_case(b"content-length") => {
                found.framing = std::str::from_utf8(&field[15..])
                    .ok()
                    .and_then(|text| text.trim().parse().ok())
                    .map(Framing::Length);
            }
            Some(17) if field[..17].eq_ignore_ascii_case(b"transfer-encoding") => {
                found.framing = Some(Framing::Chunked)
            }
            Some(12) if field[..12].eq_ignore_ascii_case(b"content-type") => found.kind = &field[13..],
            Some(10) if field[..10].eq_ignore_ascii_case(b"connection") => {
                found.closes = field[11..].to_ascii_lowercase().windows(5).any(|part| part == b"close");
            }
            _ => {}
        }
    }
    Some(found)
}

/// Whether a media type, as a header has it, is this one.
pub fn is_kind(said: &[u8], wanted: &str) -> bool {
    let plain = said.split(|&byte| byte == b';').next().unwrap_or_default();
    std::str::from_utf8(plain).map_or(false, |plain| plain.trim().eq_ignore_ascii_case(wanted))
}

/// Of a response's first line.
pub fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(rest.get(2..5)?).ok()?.parse().ok()
}

#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    Data(&'a [u8]),
    More,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Size,
    Extension,
    Data,
    DataEnd,
    Trailer,
    TrailerLine,
}

/// A body as it arrives.
#[derive(Clone, Debug)]
pub struct Body {
    framing: Framing,
    at: At,
    left: usize,
    digits: u8,
}

impl Body {
    pub fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(bytes) = framing { bytes } else { 0 };
        Body { framing, at: At::Size, left, digits: 0 }
    }

    pub fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClosed
    }

    /// What comes next in `data`, which moves on. Errors: the chunks are none.
    pub fn next<'a>(&mut self, data: &mut &'a [u8]) -> Result<Piece<'a>, ()> {
        match self.framing {
            Framing::Chunked => self.chunk(data),
            Framing::UntilClosed if data.is_empty() => Ok(Piece::More),
            Framing::UntilClosed => Ok(Piece::Data(std::mem::take(data))),
            Framing::Length(_) if self.left == 0 => Ok(Piece::End),
            Framing::Length(_) if data.is_empty() => Ok(Piece::More),
            Framing::Length(_) => Ok(Piece::Data(self.some(data))),
        }
    }

    fn some<'a>(&mut self, data: &mut &'a [u8]) -> &'a [u8] {
        let (part, rest) = data.split_at(data.len().min(self.left));
        *data = rest;
        self.left -= part.len();
        part
    }

    fn chunk<'a>(&mut self, data: &mut &'a [u8]) -> Result<Piece<'a>, ()> {
        while let Some((&byte, rest)) = data.split_first() {
            if self.at == At::Data {
                let part = self.some(data);
                if self.left == 0 {
                    self.at = At::DataEnd;
                }
                return Ok(Piece::Data(part));
            }
            *data = rest;
            match (self.at, byte) {
                (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                    if self.digits == 8 {
                        return Err(());
                    }
                    self.digits += 1;
                    self.left = self.left * 16 + (byte as char).to_digit(16).unwrap_or(0) as usize;
                }
                (At::Size, b'\r' | b';' | b' ') if self.digits > 0 => self.at = At::Extension,
                (At::Extension, b'\n') => {
                    self.at = if self.left > 0 { At::Data } else { At::Trailer };
                    self.digits = 0;
                }
                (At::Extension, _) => {}
                (At::DataEnd, b'\r') => {}
                (At::DataEnd, b'\n') => self.at = At::Size,
                (At::Trailer, b'\r') => {}
                (At::Trailer, b'\n') => return Ok(Piece::End),
                (At::Trailer, _) => self.at = At::TrailerLine,
                (At::TrailerLine, b'\n') => self.at = At::Trailer,
                (At::TrailerLine, _) => {}
                _ => return Err(()),
            }
        }
        Ok(Piece::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: Framing, parts: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), ()> {
        let mut body = Body::new(framing);
        let mut whole = Vec::new();
        for part in parts {
            let mut data = *part;
            loop {
                match body.next(&mut data)? {
                    Piece::Data(bytes) => whole.extend_from_slice(bytes),
                    Piece::More => break,
                    Piece::End => return Ok((whole, true, data.len())),
                }
            }
        }
        Ok((whole, false, 0))
    }

    #[test]
    fn any_cut_gives_the_same_body() {
        let wire: &[u8] = b"5\r\nhello\r\n0A;x=1\r\n, 56789012\r\n0\r\nt: 1\r\n\r\n";
        for cut in 0..=wire.len() {
            let (whole, ended, _) = read(Framing::Chunked, &[&wire[..cut], &wire[cut..]]).unwrap();
            assert!(ended && whole == b"hello, 56789012", "{cut}");
        }
        assert_eq!(read(Framing::Length(3), &[b"ab", b"cd"]), Ok((b"abc".to_vec(), true, 1)));
        assert_eq!(read(Framing::UntilClosed, &[b"ab", b"cd"]), Ok((b"abcd".to_vec(), false, 0)));
    }

    #[test]
    fn what_is_no_chunk_is_told() {
        for wire in [&b"x\r\n"[..], b"\r\n", b"3\r\nabcd", b"fffffffff\r\n"] {
            assert_eq!(read(Framing::Chunked, &[wire]), Err(()), "{wire:?}");
        }
    }

    #[test]
    fn heads_are_read_once_they_are_whole() {
        let wire = b"HTTP/1.1 429 No\r\nContent-Length: 12\r\nX: y\r\nConnection: Close\r\n\r\nrest";
        assert!(head(&wire[..60]).is_none());
        let found = head(wire).unwrap();
        assert_eq!((status(found.line), found.framing, found.closes), (Some(429), Some(Framing::Length(12)), true));
        assert_eq!(&wire[found.size..], b"rest");
        assert_eq!(head(b"HTTP/1.1 200 OK\r\n\r\n").unwrap().framing, None);
        assert_eq!(status(b"SSH-2.0"), None);
    }
}
