//! Google's Gemini: `generateContent`, and `streamGenerateContent` as server-sent events.

use super::{garbled, misplaced, number, put, told_error, Answer, Counts, Part, Seen, Stream, Unary, PROMPT_TOKENS};
use crate::fault::Fault;
use crate::json::{Bad, Scan};
use crate::pieces::{write_all, write_answer_text, write_piece, Of};
use crate::script::Script;

/// A call's arguments are one value here and come at once.
pub fn sections(script: &Script) -> Vec<(Part, u32)> {
    vec![
        (Part::Delta(Of::Reasoning), script.reasoning),
        (Part::Delta(Of::Text), script.text),
        (Part::Open(Of::Arguments), script.arguments.min(1)),
        (Part::Finish, 1),
    ]
}

pub fn write(out: &mut Vec<u8>, a: &Answer, part: Part, k: u32) {
    out.extend_from_slice(b"data: {\"candidates\":[{\"content\":{\"parts\":[{");
    match part {
        Part::Delta(of) => {
            put!(out, if of == Of::Reasoning { "\"thought\":true,\"text\":\"" } else { "\"text\":\"" });
            write_piece(out, of, &a.mark, k, a.script.event_bytes);
            out.push(b'"');
        }
        Part::Open(_) => {
            out.extend_from_slice(b"\"functionCall\":{\"name\":\"look_up\",\"args\":{\"text\":\"");
            write_all(out, Of::Arguments, &a.mark, &a.script);
            out.extend_from_slice(b"\"}}");
        }
        _ => out.extend_from_slice(b"\"text\":\"\""),
    }
    out.extend_from_slice(b"}],\"role\":\"model\"},");
    if part == Part::Finish {
        out.extend_from_slice(b"\"finishReason\":\"STOP\",");
    }
    put!(out, b"\"index\":0}],");
    if part == Part::Finish {
        let thought = a.script.reasoning;
        write_usage(out, a.tokens() - thought, thought);
    }
    put!(out, b"\"modelVersion\":\"mock\",\"responseId\":\"", a.mark, b"\"}\r\n\r\n");
}

fn write_usage(out: &mut Vec<u8>, tokens: u32, thought: u32) {
    put!(
        out,
        b"\"usageMetadata\":{\"promptTokenCount\":",
        number(PROMPT_TOKENS),
        b",\"candidatesTokenCount\":",
        number(tokens)
    );
    if thought > 0 {
        put!(out, b",\"thoughtsTokenCount\":", number(thought));
    }
    put!(out, b",\"totalTokenCount\":", number(PROMPT_TOKENS + tokens + thought), b"},");
}

pub fn write_unary(out: &mut Vec<u8>, a: &Answer) {
    let start = out.len();
    let mut end = b"\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],".to_vec();
    write_usage(&mut end, a.unary_tokens(), 0);
    put!(end, b"\"modelVersion\":\"mock\",\"responseId\":\"", a.mark, b"\"}");
    out.extend_from_slice(b"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"");
    write_answer_text(out, &a.mark, a.script.answer_bytes.saturating_sub(out.len() - start + end.len()));
    put!(out, end);
}

/// Texts of one event, each with whether it is a thought, and the arguments of a call.
#[derive(Default)]
struct Event<'a> {
    texts: Vec<(bool, &'a [u8])>,
    arguments: Option<&'a [u8]>,
    finish: Option<&'a [u8]>,
    counts: Counts,
    function: Option<&'a [u8]>,
    call: bool,
    id: Option<&'a [u8]>,
    index: Option<u64>,
    role: bool,
    error: bool,
}

fn read(data: &[u8]) -> Result<Event<'_>, Bad> {
    let mut found = Event::default();
    let mut scan = Scan::new(data);
    scan.object(|top, key| match key {
        b"candidates" => top.array(|candidates| {
            candidates.object(|candidate, key| match key {
                b"content" => candidate.object(|content, key| match key {
                    b"parts" => content.array(|part| read_part(&mut found, part)),
                    b"role" => {
                        found.role = content.string()? == b"model";
                        Ok(())
                    }
                    _ => content.skip(),
                }),
                b"finishReason" => {
                    found.finish = candidate.text()?;
                    Ok(())
                }
                b"index" => {
                    found.index = candidate.number()?;
                    Ok(())
                }
                _ => candidate.skip(),
            })
        }),
        b"usageMetadata" if top.is_object() => top.object(|usage, key| {
            match key {
                b"candidatesTokenCount" | b"thoughtsTokenCount" => {
                    let more = usage.number()?.unwrap_or(0);
                    found.counts.answer = Some(found.counts.answer.unwrap_or(0).saturating_add(more));
                }
                b"promptTokenCount" => found.counts.prompt = usage.number()?,
                b"totalTokenCount" => found.counts.total = usage.number()?,
                _ => return usage.skip(),
            }
            Ok(())
        }),
        b"responseId" => {
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

fn read_part<'a>(found: &mut Event<'a>, part: &mut Scan<'a>) -> Result<(), Bad> {
    let (mut thought, mut text) = (false, None);
    part.object(|member, key| {
        match key {
            b"text" => text = member.text()?,
            b"thought" => thought = member.is_true()?,
            b"functionCall" => {
                found.call = true;
                return member.object(|call, key| match key {
                    b"args" => call.object(|args, key| {
                        if key == b"text" {
                            found.arguments = args.text()?;
                            return Ok(());
                        }
                        args.skip()
                    }),
                    b"name" => {
                        found.function = call.text()?;
                        Ok(())
                    }
                    _ => call.skip(),
                });
            }
            _ => return member.skip(),
        }
        Ok(())
    })?;
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        found.texts.push((thought, text));
    }
    Ok(())
}

pub fn check(s: &mut Stream, data: &[u8]) -> Result<Seen, Fault> {
    let event = read(data).map_err(|Bad| garbled(data))?;
    if event.error {
        return Err(told_error(data));
    }
    // Neither need be said; the first candidate is meant then.
    if event.id.is_some() {
        s.is_of(event.id, data)?;
    }
    s.at(event.index.or(Some(0)), 0, data)?;
    let mut seen = Seen::Other;
    for (thought, text) in &event.texts {
        seen = s.take(if *thought { Of::Reasoning } else { Of::Text }, text)?;
    }
    if let Some(arguments) = event.arguments {
        s.pieces.take_whole(Of::Arguments, arguments)?;
        seen = Seen::Delta;
    }
    if event.call && s.pieces.exact() && event.function.is_none() {
        return Err(misplaced(data));
    }
    s.calls(event.function, data)?;
    if let Some(reason) = event.finish {
        s.finish(reason, [b"STOP"; 2], data)?;
        s.count(event.counts, data)?;
        s.done = true;
    } else if seen != Seen::Delta && !event.role {
        return Err(misplaced(data));
    }
    Ok(seen)
}

pub fn read_unary(data: &[u8]) -> Result<Unary<'_>, Bad> {
    let found = read(data)?;
    let text = found.texts.first().map(|(_, text)| *text);
    Ok(Unary { id: found.id, text, counts: found.counts, reason: found.finish.filter(|_| found.role) })
}
