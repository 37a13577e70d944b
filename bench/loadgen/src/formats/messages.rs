//! Anthropic's Messages.

use super::{
    blocks, garbled, misplaced, number, put, told_error, Answer, Counts, Part, Seen, Stream, Unary, PROMPT_TOKENS,
};
use crate::fault::Fault;
use crate::json::{Bad, Scan};
use crate::pieces::{write_answer_text, write_piece, Of};
use crate::script::Script;

pub fn sections(script: &Script) -> Vec<(Part, u32)> {
    let mut all = vec![(Part::Start, 1)];
    for of in blocks(script) {
        all.push((Part::Open(of), 1));
        all.push((Part::Delta(of), of.count(script)));
        all.push((Part::Signature, (of == Of::Reasoning).into()));
        all.push((Part::Close(of), 1));
    }
    all.push((Part::Finish, 1));
    all.push((Part::Done, 1));
    all
}

pub fn write(out: &mut Vec<u8>, a: &Answer, part: Part, k: u32) {
    let script = &a.script;
    match part {
        Part::Start => put!(
            out,
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_",
            a.mark,
            b"\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mock\",\"content\":[],\"stop_reason\":null,",
            b"\"stop_sequence\":null,\"usage\":{\"input_tokens\":",
            number(PROMPT_TOKENS),
            b",\"output_tokens\":1}}}\n\n"
        ),
        Part::Open(of) => {
            out.extend_from_slice(b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
            put!(out, number(a.index(of)), b",\"content_block\":{\"type\":");
            match of {
                Of::Text => put!(out, b"\"text\",\"text\":\"\"}}\n\n"),
                Of::Reasoning => put!(out, b"\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"),
                Of::Arguments => {
                    put!(out, b"\"tool_use\",\"id\":\"toolu_", a.mark, b"\",\"name\":\"look_up\",\"input\":{}}}\n\n")
                }
            }
        }
        Part::Delta(of) => {
            open_delta(out, a.index(of));
            out.extend_from_slice(match of {
                Of::Text => b"\"text_delta\",\"text\":\"",
                Of::Reasoning => b"\"thinking_delta\",\"thinking\":\"",
                Of::Arguments => b"\"input_json_delta\",\"partial_json\":\"",
            });
            let arguments = of == Of::Arguments;
            if arguments && k == 0 {
                out.extend_from_slice(b"{\\\"text\\\":\\\"");
            }
            write_piece(out, of, &a.mark, k, script.event_bytes);
            if arguments && k + 1 == script.arguments {
                out.extend_from_slice(b"\\\"}");
            }
            out.extend_from_slice(b"\"}}\n\n");
        }
        Part::Signature => {
            open_delta(out, a.index(Of::Reasoning));
            put!(out, b"\"signature_delta\",\"signature\":\"bW9jay", a.mark, b"\"}}\n\n");
        }
        Part::Close(of) => {
            out.extend_from_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
            put!(out, number(a.index(of)), b"}\n\n");
        }
        Part::Finish => put!(
            out,
            b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"",
            if script.arguments > 0 { "tool_use" } else { "end_turn" },
            b"\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":",
            number(a.tokens()),
            b"}}\n\n"
        ),
        _ => put!(out, b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
    }
}

fn open_delta(out: &mut Vec<u8>, index: u32) {
    out.extend_from_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    put!(out, number(index), b",\"delta\":{\"type\":");
}

pub fn write_unary(out: &mut Vec<u8>, a: &Answer) {
    let start = out.len();
    let end = format!(
        "\"}}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"usage\":{{\"input_tokens\":122,\
         \"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":128,\"output_tokens\":{}}}}}",
        a.unary_tokens()
    );
    put!(out, b"{\"id\":\"msg_", a.mark, b"\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mock\",");
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":\"");
    write_answer_text(out, &a.mark, a.script.answer_bytes.saturating_sub(out.len() - start + end.len()));
    put!(out, end);
}

#[derive(Default)]
struct Event<'a> {
    kind: &'a [u8],
    index: Option<u64>,
    block: &'a [u8],
    delta: &'a [u8],
    text: Option<&'a [u8]>,
    stop_reason: Option<&'a [u8]>,
    counts: Counts,
    function: Option<&'a [u8]>,
    /// Of the message or of a block.
    id: Option<&'a [u8]>,
    role: bool,
}

/// What of a prompt was cached or is cached now is counted apart.
fn count(counts: &mut Counts, usage: &mut Scan<'_>) -> Result<(), Bad> {
    usage.object(|usage, key| {
        match key {
            b"output_tokens" => counts.answer = usage.number()?,
            b"input_tokens" | b"cache_creation_input_tokens" | b"cache_read_input_tokens" => {
                counts.more_of_prompt(usage.number()?)
            }
            _ => return usage.skip(),
        }
        Ok(())
    })
}

fn read(data: &[u8]) -> Result<Event<'_>, Bad> {
    let mut found = Event::default();
    let mut scan = Scan::new(data);
    scan.object(|top, key| match key {
        b"type" => {
            found.kind = top.string()?;
            Ok(())
        }
        b"index" => {
            found.index = top.number()?;
            Ok(())
        }
        b"delta" => top.object(|delta, key| {
            match key {
                b"type" => found.delta = delta.string()?,
                b"text" | b"thinking" | b"partial_json" => found.text = delta.text()?,
                b"stop_reason" => found.stop_reason = delta.text()?,
                _ => return delta.skip(),
            }
            Ok(())
        }),
        b"content_block" => top.object(|block, key| {
            match key {
                b"type" => found.block = block.string()?,
                b"name" => found.function = block.text()?,
                b"id" => found.id = block.text()?,
                b"text" | b"thinking" => found.text = block.text()?,
                _ => return block.skip(),
            }
            Ok(())
        }),
        b"message" => top.object(|message, key| {
            match key {
                b"role" => found.role = message.string()? == b"assistant",
                b"id" => found.id = message.text()?,
                b"usage" if message.is_object() => return count(&mut found.counts, message),
                _ => return message.skip(),
            }
            Ok(())
        }),
        b"usage" if top.is_object() => count(&mut found.counts, top),
        _ => top.skip(),
    })?;
    scan.end()?;
    Ok(found)
}

pub fn check(s: &mut Stream, name: &[u8], data: &[u8]) -> Result<Seen, Fault> {
    let event = read(data).map_err(|Bad| garbled(data))?;
    if event.kind != name {
        return Err(Fault::new(crate::fault::Kind::Garbled, "the event's name is not its type", data));
    }
    match name {
        b"ping" => return Ok(Seen::Ping),
        b"error" => return Err(told_error(data)),
        b"message_start" if !s.started && event.role => {
            s.started = true;
            s.is_of(event.id, data)?;
            s.prompt = event.counts.prompt;
        }
        _ if !s.started => return Err(misplaced(data)),
        b"content_block_start" if s.open.is_none() && !s.finished && event.index == Some(s.blocks) => {
            s.opens_empty(event.text, data)?;
            s.open = Some(match event.block {
                b"text" => Of::Text,
                // Of reasoning that may not be read, there are no deltas.
                b"thinking" | b"redacted_thinking" => Of::Reasoning,
                b"tool_use" => Of::Arguments,
                _ => return Err(misplaced(data)),
            });
            if s.open == Some(Of::Arguments) {
                s.is_call(event.function, event.id, data)?;
            }
        }
        b"content_block_delta" if event.index == Some(s.blocks) => {
            let of = match event.delta {
                b"text_delta" => Of::Text,
                b"thinking_delta" => Of::Reasoning,
                b"input_json_delta" => Of::Arguments,
                b"signature_delta" if s.open == Some(Of::Reasoning) => return Ok(Seen::Other),
                _ => return Err(misplaced(data)),
            };
            if s.open != Some(of) {
                return Err(misplaced(data));
            }
            return s.take(of, event.text.ok_or_else(|| misplaced(data))?);
        }
        b"content_block_stop" if event.index == Some(s.blocks) => {
            let of = s.open.take().ok_or_else(|| misplaced(data))?;
            s.pieces.complete(of)?;
            s.blocks += 1;
        }
        b"message_delta" if s.open.is_none() => {
            let reason = event.stop_reason.ok_or_else(|| misplaced(data))?;
            s.finish(reason, [b"end_turn", b"tool_use"], data)?;
            let mut counts = event.counts;
            // Said at the beginning by whoever does not say it here.
            counts.prompt = counts.prompt.or(s.prompt);
            s.count(counts, data)?;
        }
        b"message_stop" if s.finished => s.done = true,
        _ => return Err(misplaced(data)),
    }
    Ok(Seen::Other)
}

pub fn read_unary(data: &[u8]) -> Result<Unary<'_>, Bad> {
    let mut found = Unary::default();
    let (mut is_message, mut role) = (false, false);
    let mut scan = Scan::new(data);
    scan.object(|top, key| {
        match key {
            b"type" => is_message = top.string()? == b"message",
            b"role" => role = top.string()? == b"assistant",
            b"stop_reason" => found.reason = top.text()?,
            b"id" => found.id = top.text()?,
            b"content" => {
                return top.array(|content| {
                    content.object(|block, key| {
                        if key == b"text" {
                            found.text = block.text()?;
                            return Ok(());
                        }
                        block.skip()
                    })
                })
            }
            b"usage" => return count(&mut found.counts, top),
            _ => return top.skip(),
        }
        Ok(())
    })?;
    scan.end()?;
    found.reason = found.reason.filter(|_| is_message && role);
    Ok(found)
}
