//! A script being played: which event comes next, and what is wrong with it. No sockets in here.

use crate::formats::{put, Answer, Part};
use crate::pieces::Mark;
use crate::script::Wrong;

/// An event stream that is being sent.
pub struct Running {
    pub answer: Answer,
    sections: Vec<(Part, u32)>,
    total: u32,
    next: u32,
    wrong: Option<(Wrong, u32)>,
    pub due_us: u64,
    /// It was due while the socket took no bytes.
    pub waits: bool,
}

/// How a turn left the stream.
pub enum End {
    No,
    Clean,
    Cut,
    Stall,
}

impl Running {
    pub fn new(answer: Answer, due_us: u64) -> Self {
        let sections = answer.sections();
        let total: u32 = sections.iter().map(|(_, count)| count).sum();
        let wrong = answer.script.wrong.map(|(wrong, place)| {
            let place = if place < 0 { place + i64::from(total) } else { place };
            (wrong, place.max(0) as u32)
        });
        Running { answer, sections, total, next: 0, wrong, due_us, waits: false }
    }

    /// Write the events of one turn, as chunks.
    pub fn write(&mut self, chunk: &mut Vec<u8>, event: &mut Vec<u8>) -> End {
        for _ in 0..self.answer.script.batch {
            let serial = self.next;
            self.next += 1;
            event.clear();
            match self.wrong.filter(|(_, place)| *place == serial).map(|(wrong, _)| wrong) {
                Some(Wrong::Cut) => return End::Cut,
                Some(Wrong::Stall) => return End::Stall,
                Some(Wrong::Junk) => event.extend_from_slice(b"data: {\"garbage\n\n"),
                Some(Wrong::Skip) => {}
                Some(Wrong::Twice) => {
                    self.event(event, serial);
                    self.event(event, serial);
                }
                Some(Wrong::Swap) if serial + 1 < self.total => {
                    self.event(event, serial + 1);
                    self.event(event, serial);
                    self.next += 1;
                }
                Some(Wrong::Mix) => {
                    let own = self.answer.mark;
                    self.answer.mark = another(&own);
                    self.event(event, serial);
                    self.answer.mark = own;
                }
                Some(Wrong::Error) => {
                    self.answer.write_error_event(event);
                    self.next = self.total;
                }
                _ => self.event(event, serial),
            }
            if !event.is_empty() {
                put!(chunk, hex(event.len()), b"\r\n", event, b"\r\n");
            }
            if self.next >= self.total {
                return match self.wrong {
                    Some((Wrong::NoEnd, _)) => End::Cut,
                    Some((Wrong::Tail, _)) => {
                        chunk.extend_from_slice(b"0\r\n\r\nmore");
                        End::Clean
                    }
                    _ => {
                        chunk.extend_from_slice(b"0\r\n\r\n");
                        End::Clean
                    }
                };
            }
        }
        End::No
    }

    /// Event `serial` of all.
    fn event(&self, out: &mut Vec<u8>, serial: u32) {
        let mut k = serial;
        for &(part, count) in &self.sections {
            if k < count {
                return self.answer.write_event(out, part, k, serial);
            }
            k -= count;
        }
    }
}

fn hex(n: usize) -> Vec<u8> {
    format!("{n:x}").into_bytes()
}

/// Somebody else's mark.
pub fn another(mark: &Mark) -> Mark {
    let mut other = *mark;
    other[0] = if other[0] == b'9' { b'0' } else { b'9' };
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Format;
    use crate::script::Script;

    fn played(word: &str) -> (String, End) {
        let script = Script::parse(word).unwrap();
        let mut running = Running::new(Answer { format: Format::Chat, mark: *b"00000001", script }, 0);
        let (mut chunk, mut event) = (Vec::new(), Vec::new());
        loop {
            match running.write(&mut chunk, &mut event) {
                End::No => {}
                end => return (String::from_utf8(chunk).unwrap(), end),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_wrong_at_its_place() {
        let good = played("s3-0").0;
        assert!(good.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
        assert_eq!(good, played("s3-0.b2").0);
        let lines =
            |text: &str| text.lines().filter(|line| line.starts_with("data: ")).map(String::from).collect::<Vec<_>>();
        let all = lines(&good);
        assert_eq!(all.len(), 7);
        assert_eq!(lines(&played("s3-0.skip2").0), [&all[..2], &all[3..]].concat());
        assert_eq!(lines(&played("s3-0.skip-1").0), all[..6]);
        assert_eq!(lines(&played("s3-0.twice2").0), [&all[..3], &all[2..]].concat());
        assert_eq!(lines(&played("s3-0.swap2").0)[2..4], [all[3].clone(), all[2].clone()]);
        assert!(lines(&played("s3-0.mix2").0)[2].contains("90000001-000001"));
        assert_eq!(lines(&played("s3-0.junk2").0)[2], "data: {\"garbage");
        let (cut, end) = played("s3-0.cut2");
        assert!(lines(&cut) == all[..2] && matches!(end, End::Cut));
        assert!(matches!(played("s3-0.stall2").1, End::Stall));
        assert!(lines(&played("s3-0.error2").0)[2].contains("\"error\""));
        let (endless, end) = played("s3-0.noend");
        assert!(lines(&endless) == all && !endless.ends_with("0\r\n\r\n") && matches!(end, End::Cut));
        assert!(played("s3-0.tail").0.ends_with("0\r\n\r\nmore"));
    }
}
