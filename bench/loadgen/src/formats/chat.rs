//! OpenAI's Chat Completions.

use super::{garbled, misplaced, number, put, told_error, Answer, Counts, Part, Seen, Stream, Unary, PROMPT_TOKENS};
use crate::fault::{Fault, Kind};
use crate::json::{Bad, Scan};
use crate::pieces::{write_answer_text, write_piece, Of, FUNCTION};
use crate::script::Script;

pub fn sections(script: &Script) -> Vec<(Part, u32)> {
    vec![
        (Part::Start, 1),
        (Part::Delta(Of::Reasoning), script.reasoning),
        (Part::Delta(Of::Text), script.text),
        (Part::Open(Of::Arguments), script.arguments.min(1)),
        (Part::Delta(Of::Arguments), script.arguments),
        (Part::Finish, 1),
        (Part::Usage, 1),
        (Part::Done, 1),
    ]
}

pub fn write(out: &mut Vec<u8>, a: &Answer, part: Part, k: u32) {
    if part == Part::Done {
        out.extend_from_slice(b"data: [DONE]\n\n");
        return;
    }
    put!(out, b"data: {\"id\":\"chatcmpl-", a.mark);
    put!(out, b"\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[");
    let script = &a.script;
    match part {
        Part::Start => put!(out, b"{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"),
        Part::Delta(of) => {
            put!(
                out,
                b"{\"index\":0,\"delta\":{",
                match of {
                    Of::Text => &b"\"content\":\""[..],
                    Of::Reasoning => b"\"reasoning_content\":\"",
                    Of::Arguments => b"\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"",
                }
            );
            let arguments = of == Of::Arguments;
            if arguments && k == 0 {
                out.extend_from_slice(b"{\\\"text\\\":\\\"");
            }
            write_piece(out, of, &a.mark, k, script.event_bytes);
            if arguments && k + 1 == script.arguments {
                out.extend_from_slice(b"\\\"}");
            }
            out.extend_from_slice(if arguments { &b"\"}}]"[..] } else { b"\"" });
            out.extend_from_slice(b"},\"finish_reason\":null}]}\n\n");
        }
        Part::Open(_) => put!(
            out,
            b"{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_",
            a.mark,
            b"\",\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"arguments\":\"\"}}]},\"finish_reason\":null}]}\n\n"
        ),
        Part::Finish => put!(out, b"{\"index\":0,\"delta\":{},\"finish_reason\":\"", reason(script), b"\"}]}\n\n"),
        _ => put!(
            out,
            b"],\"usage\":{\"prompt_tokens\":",
            number(PROMPT_TOKENS),
            b",\"completion_tokens\":",
            number(a.tokens()),
            b",\"total_tokens\":",
            number(a.tokens() + PROMPT_TOKENS),
            b"}}\n\n"
        ),
    }
}

fn reason(script: &Script) -> &'static str {
    if script.arguments > 0 {
        "tool_calls"
    } else {
        "stop"
    }
}

pub fn write_unary(out: &mut Vec<u8>, a: &Answer) {
    let start = out.len();
    let tokens = a.unary_tokens();
    let end = format!(
        "\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":{PROMPT_TOKENS},\"completion_tokens\":{tokens},\
         \"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":128}}}}}}",
        PROMPT_TOKENS + tokens
    );
    put!(
        out,
        b"{\"id\":\"chatcmpl-",
        a.mark,
        b"\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"mock\",\"choices\":["
    );
    out.extend_from_slice(b"{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    write_answer_text(out, &a.mark, a.script.answer_bytes.saturating_sub(out.len() - start + end.len()));
    put!(out, end);
}

#[derive(Default)]
struct Chunk<'a> {
    role: bool,
    text: Option<&'a [u8]>,
    reasoning: Option<&'a [u8]>,
    arguments: Option<&'a [u8]>,
    call: bool,
    choice: bool,
    /// Of the choice and of the call.
    index: Option<u64>,
    call_index: Option<u64>,
    call_id: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    details: bool,
    finish: Option<&'a [u8]>,
    function: Option<&'a [u8]>,
    counts: Option<Counts>,
    error: bool,
}

fn read(data: &[u8]) -> Result<Chunk<'_>, Bad> {
    let mut found = Chunk::default();
    let mut scan = Scan::new(data);
    scan.object(|top, key| match key {
        b"choices" => top.array(|choices| {
            found.choice = true;
            choices.object(|choice, key| match key {
                b"delta" | b"message" if choice.is_object() => {
                    choice.object(|delta, key| delta_member(&mut found, delta, key))
                }
                b"finish_reason" => {
                    found.finish = choice.text()?;
                    Ok(())
                }
                b"index" => {
                    found.index = choice.number()?;
                    Ok(())
                }
                _ => choice.skip(),
            })
        }),
        b"usage" if top.is_object() => {
            let counts = found.counts.get_or_insert_with(Counts::default);
            top.object(|usage, key| {
                match key {
                    b"completion_tokens" => counts.answer = usage.number()?,
                    b"prompt_tokens" => counts.prompt = usage.number()?,
                    b"total_tokens" => counts.total = usage.number()?,
                    _ => return usage.skip(),
                }
                Ok(())
            })
        }
        b"id" => {
            found.id = top.text()?;
            Ok(())
        }
        b"error" => {
            found.error = true;
            top.skip()
        }
        _ => top.skip(),
    })?;
    scan.end()?;
    Ok(found)
}

fn delta_member<'a>(found: &mut Chunk<'a>, delta: &mut Scan<'a>, key: &[u8]) -> Result<(), Bad> {
    match key {
        b"role" => found.role = delta.text()? == Some(b"assistant"),
        b"content" => found.text = delta.text()?,
        b"reasoning_content" => found.reasoning = delta.text()?,
        // The name that vLLM and OpenRouter give it; both may be there, and then say the same.
        b"reasoning" => found.reasoning = found.reasoning.or(delta.text()?),
        // What gateways hand along of reasoning that may not be read.
        b"reasoning_details" => {
            found.details = true;
            return delta.skip();
        }
        b"tool_calls" if delta.is_array() => {
            found.call = true;
            return delta.array(|calls| {
                calls.object(|call, key| match key {
                    b"function" => call.object(|function, key| {
                        match key {
                            b"arguments" => found.arguments = function.text()?,
                            b"name" => found.function = function.text()?,
                            _ => return function.skip(),
                        }
                        Ok(())
                    }),
                    b"index" => {
                        found.call_index = call.number()?;
                        Ok(())
                    }
                    b"id" => {
                        found.call_id = call.text()?;
                        Ok(())
                    }
                    _ => call.skip(),
                })
            });
        }
        _ => return delta.skip(),
    }
    Ok(())
}

pub fn check(s: &mut Stream, data: &[u8]) -> Result<Seen, Fault> {
    if data == b"[DONE]" {
        s.pieces.all_complete()?;
        if !s.finished {
            return Err(Fault::say(Kind::Terminal, "[DONE] without a finish"));
        }
        if !s.counted {
            return Err(Fault::say(Kind::Usage, "[DONE] without a count of tokens"));
        }
        s.done = true;
        return Ok(Seen::Other);
    }
    let chunk = read(data).map_err(|Bad| garbled(data))?;
    if chunk.error {
        return Err(told_error(data));
    }
    s.is_of(chunk.id, data)?;
    s.started |= chunk.role;
    if chunk.choice {
        s.at(chunk.index, 0, data)?;
        if s.pieces.exact() && !s.started {
            return Err(Fault::new(Kind::Content, "no role before it", data));
        }
    }
    if chunk.call {
        s.at(chunk.call_index, 0, data)?;
        s.calls(chunk.function, data)?;
        // Later slices of a call need not say again which it is.
        if s.call_id.is_empty() || chunk.call_id.map_or(false, |id| !id.is_empty()) {
            let known = Some(FUNCTION).filter(|_| !s.call_id.is_empty());
            s.is_call(chunk.function.or(known), chunk.call_id, data)?;
        }
    }
    let mut seen = Seen::Other;
    for (of, raw) in [(Of::Reasoning, chunk.reasoning), (Of::Text, chunk.text), (Of::Arguments, chunk.arguments)] {
        if let Some(raw) = raw.filter(|raw| !raw.is_empty()) {
            seen = s.take(of, raw)?;
        }
    }
    if let Some(reason) = chunk.finish {
        s.finish(reason, [b"stop", b"tool_calls"], data)?;
    }
    if let Some(counts) = chunk.counts {
        s.count(counts, data)?;
    }
    let says_something = seen == Seen::Delta
        || chunk.finish.is_some()
        || chunk.counts.is_some()
        || chunk.role
        || chunk.call
        || chunk.details;
    // Of a model's own there are chunks with nothing in them, and with what nobody here knows.
    if s.pieces.exact() && !says_something {
        return Err(misplaced(data));
    }
    Ok(seen)
}

pub fn read_unary(data: &[u8]) -> Result<Unary<'_>, Bad> {
    let found = read(data)?;
    let reason = found.finish.filter(|_| found.role);
    Ok(Unary { id: found.id, text: found.text, counts: found.counts.unwrap_or_default(), reason })
}
