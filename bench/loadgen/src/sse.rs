//! Server-sent events, line by line, however the bytes are cut.

use crate::fault::{Fault, Kind};
use crate::sys::find_byte;

/// More than any event of an agent; a line without an end is not kept for ever.
const LINE_BYTES: usize = 16 << 20;
const NAME_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Lines {
    unfinished: Vec<u8>,
    name: Vec<u8>,
    /// An event's data has come, and not yet the empty line that ends it.
    open: bool,
    pub comments: u64,
}

impl Lines {
    pub fn clear(&mut self) {
        self.unfinished.clear();
        self.name.clear();
        self.open = false;
        self.comments = 0;
    }

    /// Hand each event's name and data to `each`.
    pub fn feed(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some(stop) = find_byte(data, b'\n') {
            let part = &data[..stop];
            data = &data[stop + 1..];
            if self.unfinished.is_empty() {
                self.line(part, &mut each)?;
            } else {
                self.unfinished.extend_from_slice(part);
                let line = std::mem::take(&mut self.unfinished);
                self.line(&line, &mut each)?;
                self.unfinished = line;
                self.unfinished.clear();
            }
        }
        if self.unfinished.len() + data.len() > LINE_BYTES {
            return Err(Fault::new(Kind::Garbled, "a line without an end", data));
        }
        self.unfinished.extend_from_slice(data);
        Ok(())
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if !self.name.is_empty() && !self.open {
                return Err(Fault::new(Kind::Garbled, "an event without data", &self.name));
            }
            self.name.clear();
            self.open = false;
            return Ok(());
        }
        if let Some(value) = value_of(line, b"data:") {
            if self.open {
                return Err(Fault::new(Kind::Garbled, "an event within an event", line));
            }
            self.open = true;
            return each(&self.name, value);
        }
        if let Some(value) = value_of(line, b"event:") {
            if self.open || !self.name.is_empty() || value.len() > NAME_BYTES {
                return Err(Fault::new(Kind::Garbled, "a name out of place", line));
            }
            self.name.extend_from_slice(value);
            return Ok(());
        }
        if line[0] == b':' {
            self.comments += 1;
            return Ok(());
        }
        if line.starts_with(b"id:") || line.starts_with(b"retry:") {
            return Ok(());
        }
        Err(Fault::new(Kind::Garbled, "no line of an event stream", line))
    }

    /// The stream is over: nothing may be half said.
    pub fn end(&self) -> Result<(), Fault> {
        if self.open || !self.unfinished.is_empty() {
            return Err(Fault::new(Kind::Garbled, "the last event has no end", &self.unfinished));
        }
        Ok(())
    }
}

fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(parts: &[&[u8]]) -> Result<Vec<(String, String)>, Kind> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in parts {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            lines
                .feed(part, |name, data| {
                    found.push((text(name), text(data)));
                    Ok(())
                })
                .map_err(|fault| fault.kind)?;
        }
        lines.end().map_err(|fault| fault.kind)?;
        Ok(found)
    }

    #[test]
    fn any_cut_gives_the_same_events() {
        let wire = b"event: a\r\ndata: {1}\r\n\r\n: ping\n\ndata:{2}\n\nid: 3\nevent:b\ndata: \n\n";
        let wanted = events(&[wire]).unwrap();
        assert_eq!(wanted.len(), 3);
        assert_eq!(wanted[0], ("a".into(), "{1}".into()));
        assert_eq!(wanted[1], (String::new(), "{2}".into()));
        for cut in 0..wire.len() {
            assert_eq!(events(&[&wire[..cut], &wire[cut..]]), Ok(wanted.clone()), "{cut}");
        }
    }

    #[test]
    fn broken_framing_is_told() {
        for wire in [
            &b"data: 1\ndata: 2\n\n"[..],
            b"data: 1\n",
            b"event: a\n\n",
            b"hello\n",
            b"data: 1",
            b"data: 1\nevent: a\n\n",
        ] {
            assert_eq!(events(&[wire]), Err(Kind::Garbled), "{wire:?}");
        }
    }
}
