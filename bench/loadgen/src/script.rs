//! How the mock shall answer, in one word that a path or a model's name can carry.
//!
//!     uBYTES       one JSON answer of about BYTES bytes
//!     sN-GAP       a stream of N text events, GAP milliseconds apart (0: as fast as they are taken)
//!     statusCODE   an error of the format with this status
//!
//! More words may follow, each behind a dot (`s200-20.r10.cut50`):
//!
//!     rN  tN       N reasoning events before the text; a tool call behind it, its arguments in N events
//!     xBYTES       the text of every such event is BYTES long, at least
//!     bN           N events to a write
//!     headMS       the answer's head comes after MS;  delayMS  the first event MS after the head
//!     retryS       a `retry-after` of S seconds, with `status`
//!     everyN       what is wrong, and what is late, befalls every Nth of these requests only
//!
//! Wrong from event N on, counted over all events of the stream from 0; negative from the end (`skip-1`):
//!
//!     cutN stallN  the connection closes before the event; nothing comes any more
//!     junkN errorN the event is no JSON; it is an error of the format, and the last one
//!     skipN twiceN swapN mixN   it is left out; comes twice; after the next one; carries another request's mark
//!     usage noend tail          the token count is wrong; no last chunk; bytes behind the end
//!
//! Of these, `cut`, `stall`, `junk`, `mix` and `usage` can befall a JSON answer too, whatever their number.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrong {
    Cut,
    Stall,
    Junk,
    Error,
    Skip,
    Twice,
    Swap,
    Mix,
    Usage,
    NoEnd,
    Tail,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Script {
    /// A stream, or else one JSON answer of `answer_bytes`.
    pub streams: bool,
    pub answer_bytes: usize,
    pub text: u32,
    pub gap_ms: u64,
    pub reasoning: u32,
    pub arguments: u32,
    pub event_bytes: usize,
    pub batch: u32,
    pub head_ms: u64,
    pub delay_ms: u64,
    pub status: u16,
    pub retry_after_s: Option<u64>,
    pub every: u32,
    pub wrong: Option<(Wrong, i64)>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            streams: false,
            answer_bytes: 1024,
            text: 0,
            gap_ms: 0,
            reasoning: 0,
            arguments: 0,
            event_bytes: 0,
            batch: 1,
            head_ms: 0,
            delay_ms: 0,
            status: 200,
            retry_after_s: None,
            every: 1,
            wrong: None,
        }
    }
}

impl Script {
    /// What `word` says; nothing where it is some other word.
    pub fn parse(word: &str) -> Option<Script> {
        let mut script = Script::default();
        let mut says_what = false;
        for part in word.split('.') {
            says_what |= script.take(part)?;
        }
        if says_what {
            Some(script)
        } else {
            None
        }
    }

    /// One part; whether it says what to answer, not only how.
    fn take(&mut self, part: &str) -> Option<bool> {
        let letters = part.bytes().take_while(|byte| byte.is_ascii_lowercase()).count();
        let (name, number) = part.split_at(letters);
        if name == "s" {
            let (text, gap) = number.split_once('-')?;
            self.streams = true;
            self.text = text.parse().ok()?;
            self.gap_ms = gap.parse().ok()?;
            return Some(true);
        }
        if let Some(wrong) = wrong(name) {
            let place = if matches!(wrong, Wrong::Usage | Wrong::NoEnd | Wrong::Tail) && number.is_empty() {
                0
            } else {
                number.parse().ok()?
            };
            self.wrong = Some((wrong, place));
            return Some(false);
        }
        let number: u32 = number.parse().ok()?;
        match name {
            "u" => self.answer_bytes = number as usize,
            "status" if (100..600).contains(&number) => self.status = number as u16,
            "r" => self.reasoning = number,
            "t" => self.arguments = number,
            "x" => self.event_bytes = number as usize,
            "b" => self.batch = number.max(1),
            "head" => self.head_ms = number.into(),
            "delay" => self.delay_ms = number.into(),
            "retry" => self.retry_after_s = Some(number.into()),
            "every" => self.every = number.max(1),
            _ => return None,
        }
        Some(name == "u" || name == "status")
    }

    /// The script of one of many requests: all is well with those that `every` leaves out.
    pub fn of_request(mut self, serial: u32) -> Script {
        if serial % self.every != self.every - 1 {
            self.wrong = None;
            self.status = 200;
            self.head_ms = 0;
            self.delay_ms = 0;
        }
        self
    }

    /// Events with text of any kind.
    pub fn pieces(&self) -> u32 {
        self.text + self.reasoning + self.arguments
    }
}

fn wrong(name: &str) -> Option<Wrong> {
    Some(match name {
        "cut" => Wrong::Cut,
        "stall" => Wrong::Stall,
        "junk" => Wrong::Junk,
        "error" => Wrong::Error,
        "skip" => Wrong::Skip,
        "twice" => Wrong::Twice,
        "swap" => Wrong::Swap,
        "mix" => Wrong::Mix,
        "usage" => Wrong::Usage,
        "noend" => Wrong::NoEnd,
        "tail" => Wrong::Tail,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_old_words_mean_what_they_did() {
        let unary = Script::parse("u1024").unwrap();
        assert!(!unary.streams && unary.answer_bytes == 1024);
        let stream = Script::parse("s200-20").unwrap();
        assert!(stream.streams && stream.text == 200 && stream.gap_ms == 20 && stream.batch == 1);
    }

    #[test]
    fn words_follow_behind_dots() {
        let script = Script::parse("s5-0.r2.t3.x100.b4.head10.delay20.every7.cut-2").unwrap();
        assert_eq!((script.reasoning, script.arguments, script.pieces()), (2, 3, 10));
        assert_eq!((script.event_bytes, script.batch, script.head_ms, script.delay_ms), (100, 4, 10, 20));
        assert_eq!((script.every, script.wrong), (7, Some((Wrong::Cut, -2))));
        let status = Script::parse("status429.retry5").unwrap();
        assert_eq!((status.status, status.retry_after_s), (429, Some(5)));
        assert_eq!(Script::parse("u10.noend").unwrap().wrong, Some((Wrong::NoEnd, 0)));
    }

    #[test]
    fn other_words_are_no_script() {
        for word in [
            "", "v1", "gpt-4o", "s200", "s200-", "s-1-2", "u", "ux", "u1024.", "u1024.z5", "t5", "status99", "cut5",
            "s5-0.cut", "S5-0",
        ] {
            assert_eq!(Script::parse(word), None, "{word}");
        }
    }

    #[test]
    fn every_spares_the_others() {
        let script = Script::parse("u10.status500.every3").unwrap();
        let told: Vec<u16> = (0..6).map(|serial| script.of_request(serial).status).collect();
        assert_eq!(told, [200, 200, 500, 200, 200, 500]);
    }
}
