//! One answer as its client reads it: HTTP, then the format, each byte looked at. No sockets and no clock in here.

use crate::fault::{Fault, Kind};
use crate::formats::{check_unary, Format, Seen, Stream};
use crate::http::{self, Body, Framing, Piece};
use crate::pieces::{Mark, Pieces};
use crate::script::Script;
use crate::sse::Lines;

const HEAD_BYTES: usize = 64 << 10;
const UNARY_BYTES: usize = 64 << 20;
/// Of an error's body, for the complaint.
const ERROR_BYTES: usize = 400;

/// What the answers of a run have to be.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub format: Format,
    pub script: Script,
    /// The mock's own texts; otherwise only the form of an answer is checked.
    pub exact: bool,
}

#[derive(Debug, PartialEq)]
pub enum Got {
    More,
    /// The answer is whole and good; the connection may be used again, or not.
    Whole {
        keep: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Stream,
    Unary,
    Error(u16),
}

pub struct Reader {
    expected: Expected,
    mark: Mark,
    head: Vec<u8>,
    body: Option<Body>,
    what: What,
    closes: bool,
    lines: Lines,
    stream: Stream,
    unary: Vec<u8>,
    pub bytes: u64,
}

impl Reader {
    pub fn new(expected: Expected) -> Self {
        let mark = [b'0'; 8];
        Reader {
            expected,
            mark,
            head: Vec::new(),
            body: None,
            what: What::Unary,
            closes: false,
            lines: Lines::default(),
            stream: Stream::new(expected.format, Pieces::new(mark, expected.script, expected.exact)),
            unary: Vec::new(),
            bytes: 0,
        }
    }

    /// Another answer begins.
    pub fn begin(&mut self, mark: Mark) {
        self.mark = mark;
        self.head.clear();
        self.body = None;
        self.closes = false;
        self.lines.clear();
        self.stream = Stream::new(self.expected.format, Pieces::new(mark, self.expected.script, self.expected.exact));
        self.unary.clear();
        self.bytes = 0;
    }

    /// Comments of the event stream.
    pub fn comments(&self) -> u64 {
        self.lines.comments
    }

    /// What arrived. `each` is told of every event of a stream, and of every part of an answer that is none.
    pub fn feed(&mut self, data: &[u8], mut each: impl FnMut(Seen)) -> Result<Got, Fault> {
        let kept;
        let mut data = data;
        if self.body.is_none() {
            // Nearly always a head comes whole; only one that does not is kept.
            if !self.head.is_empty() {
                self.head.extend_from_slice(data);
                kept = std::mem::take(&mut self.head);
                data = &kept;
            }
            while self.body.is_none() {
                match self.take_head(data)? {
                    Some(size) => data = &data[size..],
                    None => {
                        self.head = data.to_vec();
                        return Ok(Got::More);
                    }
                }
            }
        }
        loop {
            let body = match self.body.as_mut() {
                Some(body) => body,
                None => return Ok(Got::More),
            };
            match body.next(&mut data).map_err(|()| Fault::new(Kind::Garbled, "no chunk", data))? {
                Piece::More => return Ok(Got::More),
                Piece::End => {
                    self.end()?;
                    if !data.is_empty() {
                        return Err(Fault::new(Kind::Trailing, "bytes behind the end", data));
                    }
                    return Ok(Got::Whole { keep: !self.closes });
                }
                Piece::Data(part) => self.take(part, &mut each)?,
            }
        }
    }

    /// The size of the head at the start of `data`, once it is whole.
    fn take_head(&mut self, data: &[u8]) -> Result<Option<usize>, Fault> {
        let head = match http::head(data) {
            Some(head) => head,
            None if data.len() > HEAD_BYTES || !b"HTTP/1.".starts_with(&data[..data.len().min(7)]) => {
                return Err(Fault::new(Kind::Garbled, "no HTTP", data));
            }
            None => return Ok(None),
        };
        let status = http::status(head.line).ok_or_else(|| Fault::new(Kind::Garbled, "no HTTP", data))?;
        if status >= 200 {
            let framing = head.framing.unwrap_or(Framing::UntilClosed);
            self.body = Some(Body::new(framing));
            self.closes = head.closes || framing == Framing::UntilClosed;
            self.what = match status {
                200 if self.expected.script.streams => What::Stream,
                200 => What::Unary,
                other => What::Error(other),
            };
            let wanted = match self.what {
                What::Stream => "text/event-stream",
                What::Unary => "application/json",
                What::Error(_) => return Ok(Some(head.size)),
            };
            if !http::is_kind(head.kind, wanted) {
                return Err(Fault::new(Kind::Garbled, &format!("not {wanted}, it says, but"), head.kind));
            }
        }
        Ok(Some(head.size))
    }

    fn take(&mut self, part: &[u8], each: &mut impl FnMut(Seen)) -> Result<(), Fault> {
        self.bytes += part.len() as u64;
        match self.what {
            What::Stream => {
                let stream = &mut self.stream;
                self.lines.feed(part, |name, data| {
                    each(stream.event(name, data)?);
                    Ok(())
                })
            }
            What::Unary => {
                if self.unary.len() + part.len() > UNARY_BYTES {
                    return Err(Fault::say(Kind::Garbled, "an answer of more than 64 MiB"));
                }
                self.unary.extend_from_slice(part);
                each(Seen::Bytes);
                Ok(())
            }
            What::Error(_) => {
                let room = ERROR_BYTES.saturating_sub(self.unary.len()).min(part.len());
                self.unary.extend_from_slice(&part[..room]);
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        match self.what {
            What::Stream => {
                self.lines.end()?;
                self.stream.end()
            }
            What::Unary => check_unary(self.expected.format, &self.unary, &self.mark, self.expected.exact),
            What::Error(status) => Err(Fault::new(Kind::Status(status), "answered", &self.unary)),
        }
    }

    /// The connection ended: well where the body has no other end.
    pub fn closed(&mut self) -> Result<Got, Fault> {
        match &self.body {
            Some(body) if body.ends_with_connection() => self.end().map(|()| Got::Whole { keep: false }),
            Some(_) => {
                Err(Fault::say(Kind::Cut, format!("the connection ended after {} bytes of the body", self.bytes)))
            }
            None => Err(Fault::say(Kind::Cut, "the connection ended before an answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(word: &str) -> Reader {
        let script = Script::parse(word).unwrap();
        let mut reader = Reader::new(Expected { format: Format::Chat, script, exact: true });
        reader.begin(*b"00000001");
        reader
    }

    fn answer(body: &str) -> Vec<u8> {
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n{KIND}content-length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    }

    const KIND: &str = "Content-Type: Application/JSON; charset=utf-8\r\n";
    const GOOD: &str =
        "{\"id\":\"c\",\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"mark=00000001 the end.\"},\
         \"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":60,\"prompt_tokens\":250,\"total_tokens\":310}}";

    #[test]
    fn any_cut_gives_the_same_answer() {
        let wire = answer(GOOD);
        for cut in 1..wire.len() {
            let mut reader = reader("u10");
            assert_eq!(reader.feed(&wire[..cut], |_| ()).unwrap(), Got::More, "{cut}");
            assert_eq!(reader.feed(&wire[cut..], |_| ()).unwrap(), Got::Whole { keep: true }, "{cut}");
        }
    }

    #[test]
    fn an_answer_may_end_with_its_connection() {
        let mut one = reader("u10");
        let wire = format!("HTTP/1.1 200 OK\r\n{KIND}\r\n{GOOD}");
        assert_eq!(one.feed(wire.as_bytes(), |_| ()).unwrap(), Got::More);
        assert_eq!(one.closed().unwrap(), Got::Whole { keep: false });
    }

    #[test]
    fn what_is_wrong_has_its_kind() {
        let kind = |wire: &[u8]| match reader("u10").feed(wire, |_| ()) {
            Err(fault) => fault.kind,
            Ok(_) => reader("u10").closed().unwrap_err().kind,
        };
        assert_eq!(kind(&[&answer(GOOD)[..], b"x"].concat()), Kind::Trailing);
        assert_eq!(kind(&answer(&GOOD.replace("00000001", "00000002"))), Kind::Mixed);
        assert_eq!(kind(&answer(&GOOD.replace("60", "61"))), Kind::Usage);
        assert_eq!(kind(&answer(&GOOD.replace("250", "251"))), Kind::Usage);
        assert_eq!(kind(&answer(&GOOD.replace(" end.", ""))), Kind::Content);
        assert_eq!(kind(&answer(&GOOD.replace("stop", "length"))), Kind::Content);
        let told = String::from_utf8(answer(GOOD)).unwrap();
        assert_eq!(kind(told.replace(KIND, "").as_bytes()), Kind::Garbled);
        assert_eq!(kind(told.replace("Application/JSON", "text/html").as_bytes()), Kind::Garbled);
        assert_eq!(kind(&answer(&GOOD.replace("\"stop\"", "null"))), Kind::Terminal);
        assert_eq!(kind(&answer("{")), Kind::Garbled);
        assert_eq!(kind(&answer(GOOD)[..60]), Kind::Cut);
        assert_eq!(kind(&answer(GOOD)[..told.len() - 9]), Kind::Cut);
        assert_eq!(kind(b"SSH-2.0-OpenSSH\r\n"), Kind::Garbled);
        assert_eq!(kind(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}"), Kind::Status(503));
    }
}
