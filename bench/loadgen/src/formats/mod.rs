//! The four formats: each module writes what the mock says, and checks what a client of it must be told.

mod chat;
mod gemini;
mod messages;
mod responses;

use crate::fault::{Fault, Kind};
use crate::json::Bad;
use crate::pieces::{Mark, Of, Pieces};
use crate::script::{Script, Wrong};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Chat,
    Messages,
    Responses,
    Gemini,
}

/// What an event of a stream is for; each format uses those that it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    Start,
    Progress,
    Open(Of),
    OpenContent(Of),
    Delta(Of),
    Signature,
    Whole(Of),
    CloseContent(Of),
    Close(Of),
    Finish,
    Usage,
    Done,
}

/// One answer of the mock.
#[derive(Clone, Debug)]
pub struct Answer {
    pub format: Format,
    pub mark: Mark,
    pub script: Script,
}

impl Answer {
    /// A token for each piece, unless the count is to be wrong.
    fn tokens(&self) -> u32 {
        self.script.pieces() + self.too_many()
    }

    fn unary_tokens(&self) -> u32 {
        UNARY_TOKENS + self.too_many()
    }

    fn too_many(&self) -> u32 {
        matches!(self.script.wrong, Some((Wrong::Usage, _))).into()
    }

    /// Where a block of this kind stands among the blocks of the answer.
    fn index(&self, of: Of) -> u32 {
        blocks(&self.script).iter().position(|block| *block == of).unwrap_or(0) as u32
    }

    /// The events of the stream in their order: which, and how many of them.
    pub fn sections(&self) -> Vec<(Part, u32)> {
        let mut all = match self.format {
            Format::Chat => chat::sections(&self.script),
            Format::Messages => messages::sections(&self.script),
            Format::Responses => responses::sections(&self.script),
            Format::Gemini => gemini::sections(&self.script),
        };
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// Event `k` of a section, as bytes of an event stream; `serial` counts all events.
    pub fn write_event(&self, out: &mut Vec<u8>, part: Part, k: u32, serial: u32) {
        match self.format {
            Format::Chat => chat::write(out, self, part, k),
            Format::Messages => messages::write(out, self, part, k),
            Format::Responses => responses::write(out, self, part, k, serial),
            Format::Gemini => gemini::write(out, self, part, k),
        }
    }

    pub fn write_error_event(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.format {
            Format::Chat => b"data: {\"error\":{\"message\":\"The mock was told to fail.\",\"type\":\"server_error\",\"code\":null}}\n\n",
            Format::Messages => b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"The mock was told to fail.\"}}\n\n",
            Format::Responses => b"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"The mock was told to fail.\",\"param\":null,\"sequence_number\":0}\n\n",
            Format::Gemini => b"data: {\"error\":{\"code\":503,\"message\":\"The mock was told to fail.\",\"status\":\"UNAVAILABLE\"}}\n\n",
        });
    }

    /// The answer to who asked for no stream, about `answer_bytes` long.
    pub fn write_unary(&self, out: &mut Vec<u8>) {
        match self.format {
            Format::Chat => chat::write_unary(out, self),
            Format::Messages => messages::write_unary(out, self),
            Format::Responses => responses::write_unary(out, self),
            Format::Gemini => gemini::write_unary(out, self),
        }
    }

    /// The body of an error with the script's status.
    pub fn write_error(&self, out: &mut Vec<u8>) {
        let status = self.script.status;
        let text = match self.format {
            Format::Chat | Format::Responses => format!(
                "{{\"error\":{{\"message\":\"The mock was told to answer {status}.\",\"type\":\"{}\",\"param\":null,\"code\":null}}}}",
                if status == 429 { "rate_limit_error" } else { "server_error" }
            ),
            Format::Messages => format!(
                "{{\"type\":\"error\",\"error\":{{\"type\":\"{}\",\"message\":\"The mock was told to answer {status}.\"}}}}",
                match status {
                    429 => "rate_limit_error",
                    529 => "overloaded_error",
                    _ => "api_error",
                }
            ),
            Format::Gemini => format!(
                "{{\"error\":{{\"code\":{status},\"message\":\"The mock was told to answer {status}.\",\"status\":\"{}\"}}}}",
                if status == 429 { "RESOURCE_EXHAUSTED" } else { "UNAVAILABLE" }
            ),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Of an answer that is no stream; the text in it is filler, so this is no count of anything.
const UNARY_TOKENS: u32 = 60;
const PROMPT_TOKENS: u32 = 250;

/// The kinds of text that an answer has, in their order; an answer of nothing has a text all the same.
fn blocks(script: &Script) -> Vec<Of> {
    let mut all: Vec<Of> = crate::pieces::KINDS.iter().copied().filter(|of| of.count(script) > 0).collect();
    if all.is_empty() {
        all.push(Of::Text);
    }
    all
}

/// Append each of several byte strings.
macro_rules! put {
    ($out:expr, $($part:expr),+ $(,)?) => {{ $( $out.extend_from_slice(AsRef::<[u8]>::as_ref(&$part)); )+ }};
}
pub(crate) use put;

/// A number as text.
pub fn number(n: impl Into<u64>) -> Number {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = n.into();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return Number { digits, at };
        }
    }
}

pub struct Number {
    digits: [u8; 20],
    at: usize,
}

impl AsRef<[u8]> for Number {
    fn as_ref(&self) -> &[u8] {
        &self.digits[self.at..]
    }
}

// ------------------------------------------------------------------------------------------------ checks

/// What an event was that is as it should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// It carries text of the answer.
    Delta,
    /// It says something about the answer.
    Other,
    /// It only says that somebody is there.
    Ping,
    /// No event: a part of an answer that is no stream.
    Bytes,
}

/// A stream as its client reads it: told of every event, it says what is wrong with the first that is.
#[derive(Clone, Debug)]
pub struct Stream {
    format: Format,
    pieces: Pieces,
    started: bool,
    finished: bool,
    counted: bool,
    done: bool,
    /// The block whose deltas may come.
    open: Option<Of>,
    /// How many blocks are over.
    blocks: u64,
    /// Whose answer it is, which blocks have begun, and which call is made: said once, it stays so.
    id: Vec<u8>,
    block_ids: Vec<Vec<u8>>,
    call_id: Vec<u8>,
    /// The number of the next event.
    next: u64,
    /// The prompt's tokens, as the beginning has them.
    prompt: Option<u64>,
}

impl Stream {
    pub fn new(format: Format, pieces: Pieces) -> Self {
        Stream {
            format,
            pieces,
            started: false,
            finished: false,
            counted: false,
            done: false,
            open: None,
            blocks: 0,
            id: Vec::new(),
            block_ids: Vec::new(),
            call_id: Vec::new(),
            next: 0,
            prompt: None,
        }
    }

    /// `name` is empty where the event has none.
    pub fn event(&mut self, name: &[u8], data: &[u8]) -> Result<Seen, Fault> {
        if self.done {
            return Err(Fault::new(Kind::Trailing, "an event behind the end", data));
        }
        match self.format {
            Format::Chat => chat::check(self, data),
            Format::Messages => messages::check(self, name, data),
            Format::Responses => responses::check(self, name, data),
            Format::Gemini => gemini::check(self, data),
        }
    }

    /// The body ended as HTTP ends a body: was the stream over?
    pub fn end(&self) -> Result<(), Fault> {
        if self.done {
            return Ok(());
        }
        self.pieces.all_complete()?;
        Err(Fault::say(Kind::Terminal, "the stream ended without its last event"))
    }

    fn take(&mut self, of: Of, raw: &[u8]) -> Result<Seen, Fault> {
        if self.finished {
            return Err(Fault::new(Kind::Content, "text behind the finish", raw));
        }
        self.pieces.take(of, raw)?;
        Ok(if raw.is_empty() { Seen::Other } else { Seen::Delta })
    }

    /// A finish, once, with everything there. Where the format says why, `reason` is what it says, and `wanted` what it
    /// says of an answer that is whole and of one that calls a tool.
    fn finish(&mut self, reason: &[u8], wanted: [&[u8]; 2], data: &[u8]) -> Result<(), Fault> {
        self.pieces.all_complete()?;
        let right = reason == wanted[usize::from(self.pieces.wants(Of::Arguments))];
        if self.finished || (self.pieces.exact() && !right) {
            return Err(Fault::new(Kind::Content, "finish", data));
        }
        self.finished = true;
        Ok(())
    }

    fn count(&mut self, counts: Counts, data: &[u8]) -> Result<(), Fault> {
        // Some count with every chunk.
        if self.counted && self.pieces.exact() {
            return Err(Fault::new(Kind::Content, "a second count", data));
        }
        self.counted = true;
        self.pieces.counted(counts.answer)?;
        if self.pieces.exact() {
            counts.see_prompt()?;
            counts.see_total(self.format)?;
        }
        Ok(())
    }

    /// Where something stands among its like, which is told apart by that.
    fn at(&self, place: Option<u64>, wanted: u64, data: &[u8]) -> Result<(), Fault> {
        if self.pieces.exact() && place != Some(wanted) {
            return Err(Fault::new(Kind::Content, "another index", data));
        }
        Ok(())
    }

    /// Whose answer this event is part of.
    fn is_of(&mut self, id: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
        if !self.pieces.exact() || stays(&mut self.id, id) {
            return Ok(());
        }
        Err(match id {
            Some(id) if !id.is_empty() => Fault::new(Kind::Mixed, "another answer's identifier", data),
            _ => Fault::new(Kind::Content, "no identifier", data),
        })
    }

    /// A call, by its name and by what its result will be sent for.
    fn is_call(&mut self, name: Option<&[u8]>, id: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
        self.calls(name, data)?;
        if self.pieces.exact() && (name.is_none() || !stays(&mut self.call_id, id)) {
            return Err(Fault::new(Kind::Content, "a call without its name or identifier", data));
        }
        Ok(())
    }

    /// A block is opened: a client adds the deltas to what it holds already.
    fn opens_empty(&self, text: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
        if self.pieces.exact() && text.map_or(false, |text| !text.is_empty()) {
            return Err(Fault::new(Kind::Content, "text before the first delta", data));
        }
        Ok(())
    }

    /// The name of the function that is called, where an event says it.
    fn calls(&self, name: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
        match name {
            Some(name) if !self.pieces.may_call(name) => Err(Fault::new(Kind::Content, "another function", data)),
            _ => Ok(()),
        }
    }
}

/// Whether this is an identifier, and the one that was said first.
fn stays(known: &mut Vec<u8>, said: Option<&[u8]>) -> bool {
    let said = said.unwrap_or_default();
    if known.is_empty() {
        known.extend_from_slice(said);
    }
    !said.is_empty() && known[..] == *said
}

/// How many tokens an answer says that there were, all of the prompt's, all of its own, and together.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub prompt: Option<u64>,
    pub answer: Option<u64>,
    pub total: Option<u64>,
}

impl Counts {
    fn see_prompt(&self) -> Result<(), Fault> {
        if self.prompt != Some(PROMPT_TOKENS.into()) {
            return Err(Fault::say(
                Kind::Usage,
                format!("{:?} tokens of the prompt, not {PROMPT_TOKENS}", self.prompt),
            ));
        }
        Ok(())
    }

    /// Messages says none.
    fn see_total(&self, format: Format) -> Result<(), Fault> {
        let sum = self.prompt.unwrap_or(0).saturating_add(self.answer.unwrap_or(0));
        if format != Format::Messages && self.total != Some(sum) {
            return Err(Fault::say(Kind::Usage, format!("{:?} tokens in all, not {sum}", self.total)));
        }
        Ok(())
    }

    /// Some of the prompt's tokens are counted apart from the others.
    fn more_of_prompt(&mut self, tokens: Option<u64>) {
        self.prompt = match (self.prompt, tokens) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
    }
}

/// An answer that is no stream.
#[derive(Default)]
pub struct Unary<'a> {
    pub id: Option<&'a [u8]>,
    pub text: Option<&'a [u8]>,
    pub counts: Counts,
    /// Why it ended; nothing where it has not.
    pub reason: Option<&'a [u8]>,
}

/// `exact`: the mock's own text is due.
pub fn check_unary(format: Format, data: &[u8], mark: &Mark, exact: bool) -> Result<(), Fault> {
    let read = match format {
        Format::Chat => chat::read_unary(data),
        Format::Messages => messages::read_unary(data),
        Format::Responses => responses::read_unary(data),
        Format::Gemini => gemini::read_unary(data),
    };
    let answer = read.map_err(|Bad| Fault::new(Kind::Garbled, "no answer of this format", data))?;
    let reason = answer.reason.ok_or_else(|| Fault::new(Kind::Terminal, "an unfinished answer", data))?;
    if exact {
        let whole: &[u8] = match format {
            Format::Chat => b"stop",
            Format::Messages => b"end_turn",
            Format::Responses => b"completed",
            Format::Gemini => b"STOP",
        };
        if reason != whole {
            return Err(Fault::new(Kind::Content, "finish", data));
        }
        let text = answer.text.ok_or_else(|| Fault::new(Kind::Content, "no text", data))?;
        crate::pieces::check_answer_text(text, mark)?;
        if answer.counts.answer != Some(UNARY_TOKENS.into()) {
            return Err(Fault::new(Kind::Usage, "not 60 tokens", data));
        }
        answer.counts.see_prompt()?;
        answer.counts.see_total(format)?;
        // Gemini's may go without.
        if format != Format::Gemini && answer.id.unwrap_or_default().is_empty() {
            return Err(Fault::new(Kind::Content, "an answer without its identifier", data));
        }
    }
    Ok(())
}

fn garbled(data: &[u8]) -> Fault {
    Fault::new(Kind::Garbled, "no event of this format", data)
}

fn misplaced(data: &[u8]) -> Fault {
    Fault::new(Kind::Content, "an event that has no place here", data)
}

fn told_error(data: &[u8]) -> Fault {
    Fault::new(Kind::ErrorEvent, "the stream says", data)
}

#[cfg(test)]
mod tests;
