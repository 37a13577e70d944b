//! Server-sent events, line by line, however the bytes are cut. Source: WHATWG HTML, section 9.2.6.
//!
//! Lines end in LF, CRLF or CR, a byte order mark may stand before the first, an event's data may take several of them,
//! and what nobody knows is passed over: none of that is a fault, since no client takes it for one.

use crate::fault::{Fault, Kind};
use crate::sys::find_byte;

/// More than any event of an agent; one without an end is not kept for ever.
const EVENT_BYTES: usize = 16 << 20;
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, Default)]
pub struct Lines {
    unfinished: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    /// An event's data has come, and not yet the empty line that ends it.
    open: bool,
    /// A line has come: a byte order mark can be none any more.
    begun: bool,
    /// A CR was last: an LF that follows belongs to it.
    after_cr: bool,
    pub comments: u64,
}

impl Lines {
    pub fn clear(&mut self) {
        self.unfinished.clear();
        self.name.clear();
        self.data.clear();
        self.open = false;
        self.begun = false;
        self.after_cr = false;
        self.comments = 0;
    }

    /// Hand each event's name and data to `each`, once it is whole.
    pub fn feed(&mut self, data: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut data = data;
        if let Some(&first) = data.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                data = &data[1..];
            }
        }
        while let Some(stop) = find_byte(data, b'\n') {
            let before = &data[..stop];
            data = &data[stop + 1..];
            let last = self.ended_by_cr(before.strip_suffix(b"\r").unwrap_or(before), &mut each)?;
            self.ended(last, &mut each)?;
        }
        self.after_cr |= data.ends_with(b"\r");
        let rest = self.ended_by_cr(data, &mut each)?;
        if self.unfinished.len() + rest.len() > EVENT_BYTES {
            return Err(Fault::new(Kind::Garbled, "a line without an end", rest));
        }
        self.unfinished.extend_from_slice(rest);
        Ok(())
    }

    /// What is left of `data` behind its last CR; there is no LF in it.
    fn ended_by_cr<'a>(
        &mut self,
        mut data: &'a [u8],
        each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
    ) -> Result<&'a [u8], Fault> {
        while let Some(stop) = find_byte(data, b'\r') {
            self.ended(&data[..stop], each)?;
            data = &data[stop + 1..];
        }
        Ok(data)
    }

    /// A line ends with `part`.
    fn ended(&mut self, part: &[u8], each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        if self.unfinished.is_empty() {
            return self.line(part, each);
        }
        self.unfinished.extend_from_slice(part);
        let line = std::mem::take(&mut self.unfinished);
        let told = self.line(&line, each);
        self.unfinished = line;
        self.unfinished.clear();
        told
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let line = if is_first { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        if line.is_empty() {
            return self.event(each);
        }
        let (field, value) = match find_byte(line, b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" => self.comments += 1,
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"data" => {
                if self.data.len() + value.len() > EVENT_BYTES {
                    return Err(Fault::new(Kind::Garbled, "an event without an end", value));
                }
                if std::mem::replace(&mut self.open, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// An empty line: what came before it is an event, if there was data in it.
    fn event(&mut self, each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let told = match std::str::from_utf8(&self.data) {
            Ok(_) if !self.open => Ok(()),
            Ok(_) => each(&self.name, &self.data),
            Err(_) => Err(Fault::new(Kind::Garbled, "an event that is not UTF-8", &self.data)),
        };
        self.name.clear();
        self.data.clear();
        self.open = false;
        told
    }

    /// The stream is over: nothing may be half said.
    pub fn end(&self) -> Result<(), Fault> {
        if self.open || !self.unfinished.is_empty() {
            let half = if self.open { &self.data } else { &self.unfinished };
            return Err(Fault::new(Kind::Garbled, "the last event has no end", half));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    type Events = Vec<(Vec<u8>, Vec<u8>)>;

    fn events(parts: &[&[u8]]) -> Result<Events, Kind> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in parts {
            lines
                .feed(part, |name, data| {
                    found.push((name.to_vec(), data.to_vec()));
                    Ok(())
                })
                .map_err(|fault| fault.kind)?;
        }
        lines.end().map_err(|fault| fault.kind)?;
        Ok(found)
    }

    fn event(name: &str, data: &str) -> (Vec<u8>, Vec<u8>) {
        (name.into(), data.into())
    }

    /// The section's own rules over a whole stream, in its own order: nothing in common with the above.
    fn by_the_book(stream: &str) -> Events {
        let (mut found, mut name, mut data) = (Vec::new(), String::new(), String::new());
        let plain = stream.strip_prefix('\u{feff}').unwrap_or(stream).replace("\r\n", "\n").replace('\r', "\n");
        for line in plain.split('\n') {
            if line.is_empty() {
                if let Some(text) = data.strip_suffix('\n') {
                    found.push(event(&name, text));
                }
                (name, data) = (String::new(), String::new());
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => name = value.into(),
                "data" => data = data + value + "\n",
                _ => {}
            }
        }
        found
    }

    /// The same stream as others may write it.
    fn spellings(lf: &str) -> Vec<String> {
        let ends = ["\n", "\r\n", "\r"];
        ends.iter().flat_map(|end| ["", "\u{feff}"].map(|bom| format!("{bom}{}", lf.replace('\n', end)))).collect()
    }

    const LEGAL: &str =
        "event: a\ndata: {1}\n\n: ping\n\ndata:{2}\n\nid: 3\nevent:b\ndata: \n\nretry: 1\nevent: gone\n\n\
        data: {\ndata:  3}\nevent: behind\n:\n\ndata\nunknown\nwhat: is this\n\nevent: x\nevent: y\ndata: \u{e9}\n\n";

    #[test]
    fn what_is_legal_is_read_by_the_book_at_any_cut() {
        let wanted = [
            event("a", "{1}"),
            event("", "{2}"),
            event("b", ""),
            event("behind", "{\n 3}"),
            event("", ""),
            event("y", "\u{e9}"),
        ];
        for stream in spellings(LEGAL) {
            assert_eq!(by_the_book(&stream), wanted, "{stream:?}");
            let wire = stream.as_bytes();
            for cut in 0..wire.len() {
                assert_eq!(events(&[&wire[..cut], &wire[cut..]]), Ok(wanted.to_vec()), "{stream:?} {cut}");
            }
            let each: Vec<&[u8]> = wire.chunks(1).collect();
            assert_eq!(events(&each), Ok(wanted.to_vec()), "{stream:?} byte by byte");
        }
    }

    #[test]
    fn an_event_is_handed_out_with_the_first_byte_of_its_last_line_end() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = format!("data: 1{end}{end}data: 2{end}{end}");
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for (at, byte) in stream.bytes().enumerate() {
                let note = |_: &[u8], _: &[u8]| {
                    found.push(at);
                    Ok(())
                };
                lines.feed(&[byte], note).unwrap();
            }
            let one = 7 + end.len();
            assert_eq!(found, [one, one + end.len() + one], "{end:?}");
        }
    }

    #[test]
    fn what_is_broken_off_and_what_is_no_text_is_told() {
        for wire in
            [&b"data: 1\n"[..], b"data: 1", b"data: 1\n\ndata", b"data: 1\r", b"data: \xff\n\n", b"data: \xc3\n\n"]
        {
            assert_eq!(events(&[wire]), Err(Kind::Garbled), "{wire:?}");
        }
    }

    fn streams_in(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                streams_in(&path, found);
            } else if path.extension().map_or(false, |kind| kind == "sse") {
                found.push(path);
            }
        }
    }

    #[test]
    fn the_streams_of_the_suite_are_read_by_the_book() {
        let mut paths = Vec::new();
        streams_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors"), &mut paths);
        assert!(paths.len() > 100, "{}", paths.len());
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            // Some are cut off, which is not what this is about.
            let whole = text.trim_end().to_string() + "\n\n";
            for stream in spellings(&whole.replace("\r\n", "\n")) {
                let (wire, wanted) = (stream.as_bytes(), by_the_book(&stream));
                assert!(!wanted.is_empty(), "{path:?}");
                let each: Vec<&[u8]> = wire.chunks(1).collect();
                assert!(events(&each).as_ref() == Ok(&wanted), "{path:?} byte by byte");
                for cut in 0..wire.len() {
                    assert!(events(&[&wire[..cut], &wire[cut..]]).as_ref() == Ok(&wanted), "{path:?} {cut}");
                }
            }
        }
    }
}
