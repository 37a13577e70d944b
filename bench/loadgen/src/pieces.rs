//! The texts that stand in events: each carries its request's mark and its own number, so that the other end can tell
//! whether a stream arrived whole, in order and unmixed.

use crate::fault::{Fault, Kind};
use crate::json::unescaped;
use crate::script::Script;

pub const MARK: usize = 8;
pub type Mark = [u8; MARK];

/// Text of an answer: how much, in the order in which the kinds come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Of {
    Reasoning,
    Text,
    Arguments,
}

pub const KINDS: [Of; 3] = [Of::Reasoning, Of::Text, Of::Arguments];
const FILLER: &[u8] = b"the quick brown fox jumps over a lazy dog. ";
/// Arguments are JSON themselves, though in pieces.
pub const ARGUMENTS_OPEN: &[u8] = b"{\"text\":\"";
pub const ARGUMENTS_CLOSE: &[u8] = b"\"}";
pub const FUNCTION: &[u8] = b"look_up";
/// Behind the filler of an answer that is no stream, so that one that was shortened is not taken for whole.
pub const ANSWER_CLOSE: &[u8] = b" end.";

impl Of {
    pub fn count(self, script: &Script) -> u32 {
        match self {
            Of::Reasoning => script.reasoning,
            Of::Text => script.text,
            Of::Arguments => script.arguments,
        }
    }

    fn tail(self) -> &'static [u8] {
        match self {
            Of::Reasoning => b" think ",
            Of::Text => b" token ",
            Of::Arguments => b" field ",
        }
    }
}

/// Filler to go on with from its `at`th byte on.
pub fn fill(out: &mut Vec<u8>, at: usize, bytes: usize) {
    let mut at = at % FILLER.len();
    let mut left = bytes;
    while left > 0 {
        let part = (FILLER.len() - at).min(left);
        out.extend_from_slice(&FILLER[at..at + part]);
        left -= part;
        at = 0;
    }
}

fn is_filler(text: &[u8]) -> bool {
    text.chunks(FILLER.len()).all(|part| FILLER.starts_with(part))
}

fn digits(number: u32) -> [u8; 6] {
    let mut text = [b'0'; 6];
    let mut left = number;
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    text
}

/// Piece `k` of its kind, without anything that JSON would escape.
pub fn write_piece(out: &mut Vec<u8>, of: Of, mark: &Mark, k: u32, event_bytes: usize) {
    let start = out.len();
    out.extend_from_slice(mark);
    out.push(b'-');
    out.extend_from_slice(&digits(k));
    out.extend_from_slice(of.tail());
    let have = out.len() - start;
    fill(out, 0, event_bytes.saturating_sub(have));
}

/// All pieces of a kind.
pub fn write_all(out: &mut Vec<u8>, of: Of, mark: &Mark, script: &Script) {
    for k in 0..of.count(script) {
        write_piece(out, of, mark, k, script.event_bytes);
    }
}

/// The text of an answer that is no stream: the mark, as much filler as it takes, and its end.
pub fn write_answer_text(out: &mut Vec<u8>, mark: &Mark, bytes: usize) {
    let start = out.len();
    out.extend_from_slice(b"mark=");
    out.extend_from_slice(mark);
    let left = bytes.saturating_sub(out.len() - start + ANSWER_CLOSE.len());
    if left > 0 {
        out.push(b' ');
        fill(out, 0, left - 1);
    }
    out.extend_from_slice(ANSWER_CLOSE);
}

pub fn check_answer_text(raw: &[u8], mark: &Mark) -> Result<(), Fault> {
    let text = unescaped(raw);
    let rest = text.strip_prefix(b"mark=").ok_or_else(|| Fault::new(Kind::Content, "text", raw))?;
    if rest.len() < MARK + 1 || rest[..MARK] != mark[..] {
        return Err(Fault::new(Kind::Mixed, "another's mark", raw));
    }
    match rest[MARK..].strip_suffix(ANSWER_CLOSE) {
        // Without any filler, its blank is the mark's.
        Some([]) => Ok(()),
        Some([b' ', filler @ ..]) if is_filler(filler) => Ok(()),
        _ => Err(Fault::new(Kind::Content, "text", raw)),
    }
}

/// What has come of an answer's pieces, held against what was asked for.
#[derive(Clone, Debug)]
pub struct Pieces {
    mark: Mark,
    script: Script,
    /// False against a real model: its words are its own, and so is their number.
    exact: bool,
    come: [u32; 3],
}

impl Pieces {
    pub fn new(mark: Mark, script: Script, exact: bool) -> Self {
        Pieces { mark, script, exact, come: [0; 3] }
    }

    pub fn any(&self) -> bool {
        self.come != [0; 3]
    }

    /// The next piece of its kind, as it stands in JSON. Empty text is no piece: many open a part with it.
    pub fn take(&mut self, of: Of, raw: &[u8]) -> Result<(), Fault> {
        if raw.is_empty() {
            return Ok(());
        }
        let k = self.come[of as usize];
        // Some upstreams, Google's among them, send arguments in one piece.
        if self.exact && of == Of::Arguments && k == 0 && self.is_whole(of, raw) {
            self.come[of as usize] = of.count(&self.script);
            return self.in_turn(of, raw);
        }
        self.come[of as usize] += 1;
        if !self.exact {
            return Ok(());
        }
        let (count, text) = (of.count(&self.script), unescaped(raw));
        let mut text = &text[..];
        if of == Of::Arguments {
            text = if k == 0 { text.strip_prefix(ARGUMENTS_OPEN).unwrap_or(text) } else { text };
            // The brackets may also come by themselves, as some upstreams send them.
            if k + 1 == count || k == count {
                text = text.strip_suffix(ARGUMENTS_CLOSE).unwrap_or(text);
            }
            if text.is_empty() {
                self.come[of as usize] -= 1;
                return Ok(());
            }
        }
        self.check(of, k, text).map_err(|(kind, what)| Fault::new(kind, what, raw))?;
        if k >= count {
            return Err(Fault::new(Kind::Count, "more text than was asked for", raw));
        }
        self.in_turn(of, raw)
    }

    /// The kinds before this one are over.
    fn in_turn(&self, of: Of, raw: &[u8]) -> Result<(), Fault> {
        let before = &KINDS[..of as usize];
        if before.iter().any(|earlier| self.come[*earlier as usize] < earlier.count(&self.script)) {
            return Err(Fault::new(Kind::Order, "text before its turn", raw));
        }
        Ok(())
    }

    fn check(&self, of: Of, k: u32, text: &[u8]) -> Result<(), (Kind, &'static str)> {
        let tail = of.tail();
        let size = MARK + 7 + tail.len();
        if text.len() < size || text[MARK] != b'-' || &text[MARK + 7..size] != tail {
            return Err((Kind::Content, "text"));
        }
        if text[..MARK] != self.mark[..] {
            return Err((Kind::Mixed, "another's mark"));
        }
        if text[MARK + 1..MARK + 7] != digits(k) {
            return Err((Kind::Order, "not the next text"));
        }
        let filler = &text[size..];
        if filler.len() != self.script.event_bytes.saturating_sub(size) || !is_filler(filler) {
            return Err((Kind::Content, "filler"));
        }
        Ok(())
    }

    /// All pieces of a kind at once: `text` must be these, one behind the other.
    pub fn is_whole(&self, of: Of, raw: &[u8]) -> bool {
        if !self.exact {
            return true;
        }
        let mut all = Vec::with_capacity(raw.len());
        if of == Of::Arguments {
            all.extend_from_slice(ARGUMENTS_OPEN);
        }
        write_all(&mut all, of, &self.mark, &self.script);
        if of == Of::Arguments {
            all.extend_from_slice(ARGUMENTS_CLOSE);
        }
        unescaped(raw)[..] == all[..]
    }

    /// The same, and counted: where a format sends a kind in one event.
    pub fn take_whole(&mut self, of: Of, raw: &[u8]) -> Result<(), Fault> {
        let mut all = Vec::with_capacity(raw.len());
        write_all(&mut all, of, &self.mark, &self.script);
        if self.exact && unescaped(raw)[..] != all[..] {
            return Err(Fault::new(Kind::Content, "arguments", raw));
        }
        if self.exact {
            self.in_turn(of, raw)?;
            if self.come[of as usize] > 0 {
                return Err(Fault::new(Kind::Count, "a second call", raw));
            }
        }
        self.come[of as usize] = of.count(&self.script).max(1);
        Ok(())
    }

    /// Everything of this kind has come.
    pub fn complete(&self, of: Of) -> Result<(), Fault> {
        let (come, count) = (self.come[of as usize], of.count(&self.script));
        if self.exact && come != count {
            return Err(Fault::say(Kind::Count, format!("{come} of {count} events with {of:?}")));
        }
        Ok(())
    }

    pub fn all_complete(&self) -> Result<(), Fault> {
        KINDS.iter().try_for_each(|of| self.complete(*of))
    }

    /// Whether it is known to the letter what has to come.
    pub fn exact(&self) -> bool {
        self.exact
    }

    /// Whether `name` may be that of the function called.
    pub fn may_call(&self, name: &[u8]) -> bool {
        !self.exact || name == FUNCTION
    }

    /// The mock counts a token for each piece.
    pub fn counted(&self, tokens: Option<u64>) -> Result<(), Fault> {
        if self.exact && tokens != Some(self.script.pieces().into()) {
            return Err(Fault::say(Kind::Usage, format!("{tokens:?} output tokens, not {}", self.script.pieces())));
        }
        Ok(())
    }

    pub fn wants(&self, of: Of) -> bool {
        of.count(&self.script) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: &Mark = b"00000001";

    fn pieces(word: &str) -> Pieces {
        Pieces::new(*MINE, Script::parse(word).unwrap(), true)
    }

    fn piece(of: Of, mark: &Mark, k: u32, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_piece(&mut out, of, mark, k, bytes);
        out
    }

    fn kind(result: Result<(), Fault>) -> Option<Kind> {
        result.err().map(|fault| fault.kind)
    }

    #[test]
    fn pieces_in_order_are_taken_and_each_fault_has_its_kind() {
        assert_eq!(&piece(Of::Text, MINE, 7, 0), b"00000001-000007 token ");
        let mut p = pieces("s2-0.x40");
        assert_eq!(kind(p.take(Of::Text, &piece(Of::Text, MINE, 0, 40))), None);
        assert_eq!(kind(p.clone().take(Of::Text, &piece(Of::Text, b"00000002", 1, 40))), Some(Kind::Mixed));
        assert_eq!(kind(p.clone().take(Of::Text, &piece(Of::Text, MINE, 0, 40))), Some(Kind::Order));
        assert_eq!(kind(p.clone().take(Of::Text, &piece(Of::Text, MINE, 1, 39))), Some(Kind::Content));
        assert_eq!(kind(p.clone().take(Of::Reasoning, &piece(Of::Text, MINE, 0, 40))), Some(Kind::Content));
        assert_eq!(kind(p.all_complete()), Some(Kind::Count));
        assert_eq!(kind(p.take(Of::Text, &piece(Of::Text, MINE, 1, 40))), None);
        assert_eq!(kind(p.all_complete()), None);
        assert_eq!(kind(p.take(Of::Text, &piece(Of::Text, MINE, 2, 40))), Some(Kind::Count));
        assert_eq!(kind(p.counted(Some(2))), None);
        assert_eq!(kind(p.counted(Some(3))), Some(Kind::Usage));
    }

    #[test]
    fn text_does_not_come_before_the_reasoning_is_over() {
        let mut p = pieces("s1-0.r1");
        assert_eq!(kind(p.clone().take(Of::Text, &piece(Of::Text, MINE, 0, 0))), Some(Kind::Order));
        assert_eq!(kind(p.take(Of::Reasoning, &piece(Of::Reasoning, MINE, 0, 0))), None);
        assert_eq!(kind(p.take(Of::Text, &piece(Of::Text, MINE, 0, 0))), None);
    }

    #[test]
    fn arguments_may_come_with_their_brackets_or_apart_or_at_once() {
        let (first, second) = (piece(Of::Arguments, MINE, 0, 0), piece(Of::Arguments, MINE, 1, 0));
        let together = [[b"{\\\"text\\\":\\\"", &first[..]].concat(), [&second[..], b"\\\"}"].concat()];
        let apart = [b"{\\\"text\\\":\\\"".to_vec(), first.clone(), second.clone(), b"\\\"}".to_vec()];
        let whole = [[b"{\\\"text\\\":\\\"", &first[..], &second[..], b"\\\"}"].concat()];
        for way in [&together[..], &apart[..], &whole[..]] {
            let mut p = pieces("s0-0.t2");
            for part in way {
                assert_eq!(kind(p.take(Of::Arguments, part)), None);
            }
            assert_eq!(kind(p.all_complete()), None);
        }
    }

    #[test]
    fn an_answer_is_its_mark_and_filler() {
        let mut text = Vec::new();
        write_answer_text(&mut text, MINE, 100);
        assert_eq!(text.len(), 100);
        assert_eq!(kind(check_answer_text(&text, MINE)), None);
        assert_eq!(kind(check_answer_text(&text, b"00000002")), Some(Kind::Mixed));
        for bytes in 0..30 {
            let mut short = Vec::new();
            write_answer_text(&mut short, MINE, bytes);
            assert_eq!((short.len(), kind(check_answer_text(&short, MINE))), (bytes.max(18), None));
        }
        assert_eq!(kind(check_answer_text(&text[..60], MINE)), Some(Kind::Content));
        text[40] ^= 1;
        assert_eq!(kind(check_answer_text(&text, MINE)), Some(Kind::Content));
    }
}
