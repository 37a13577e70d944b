//! OpenAI's Responses.

use super::{
    blocks, garbled, misplaced, number, put, told_error, Answer, Counts, Part, Seen, Stream, Unary, PROMPT_TOKENS,
};
use crate::fault::{Fault, Kind};
use crate::json::{Bad, Scan};
use crate::pieces::{write_all, write_answer_text, write_piece, Of};
use crate::script::Script;

pub fn sections(script: &Script) -> Vec<(Part, u32)> {
    let mut all = vec![(Part::Start, 1), (Part::Progress, 1)];
    for of in blocks(script) {
        let in_parts = (of != Of::Arguments).into();
        all.push((Part::Open(of), 1));
        all.push((Part::OpenContent(of), in_parts));
        all.push((Part::Delta(of), of.count(script)));
        all.push((Part::Whole(of), 1));
        all.push((Part::CloseContent(of), in_parts));
        all.push((Part::Close(of), 1));
    }
    all.push((Part::Done, 1));
    all
}

fn type_of(part: Part) -> &'static str {
    match part {
        Part::Start => "response.created",
        Part::Progress => "response.in_progress",
        Part::Open(_) => "response.output_item.added",
        Part::Close(_) => "response.output_item.done",
        Part::OpenContent(Of::Reasoning) => "response.reasoning_summary_part.added",
        Part::OpenContent(_) => "response.content_part.added",
        Part::CloseContent(Of::Reasoning) => "response.reasoning_summary_part.done",
        Part::CloseContent(_) => "response.content_part.done",
        Part::Delta(Of::Text) => "response.output_text.delta",
        Part::Delta(Of::Reasoning) => "response.reasoning_summary_text.delta",
        Part::Delta(Of::Arguments) => "response.function_call_arguments.delta",
        Part::Whole(Of::Text) => "response.output_text.done",
        Part::Whole(Of::Reasoning) => "response.reasoning_summary_text.done",
        Part::Whole(Of::Arguments) => "response.function_call_arguments.done",
        _ => "response.completed",
    }
}

pub fn write(out: &mut Vec<u8>, a: &Answer, part: Part, k: u32, serial: u32) {
    let name = type_of(part);
    put!(out, b"event: ", name, b"\ndata: {\"type\":\"", name, b"\",\"sequence_number\":", number(serial));
    let mark = &a.mark;
    match part {
        Part::Start | Part::Progress => {
            out.extend_from_slice(b",\"response\":");
            write_response(out, a, "in_progress", |out| out.extend_from_slice(b"[]"));
        }
        Part::Open(of) | Part::Close(of) => {
            put!(out, b",\"output_index\":", number(a.index(of)), b",\"item\":");
            write_item(out, a, of, matches!(part, Part::Close(_)));
        }
        Part::OpenContent(of) | Part::CloseContent(of) => {
            write_place(out, a, of);
            out.extend_from_slice(b",\"part\":");
            write_part(out, a, of, matches!(part, Part::CloseContent(_)));
        }
        Part::Delta(of) => {
            write_place(out, a, of);
            out.extend_from_slice(b",\"delta\":\"");
            let arguments = of == Of::Arguments;
            if arguments && k == 0 {
                out.extend_from_slice(b"{\\\"text\\\":\\\"");
            }
            write_piece(out, of, mark, k, a.script.event_bytes);
            if arguments && k + 1 == a.script.arguments {
                out.extend_from_slice(b"\\\"}");
            }
            out.extend_from_slice(if of == Of::Text { &b"\",\"logprobs\":[]"[..] } else { b"\"" });
        }
        Part::Whole(of) => {
            write_place(out, a, of);
            put!(out, if of == Of::Arguments { ",\"arguments\":" } else { ",\"text\":" });
            write_whole(out, a, of);
        }
        _ => {
            out.extend_from_slice(b",\"response\":");
            write_response(out, a, "completed", |out| {
                out.push(b'[');
                for (i, of) in blocks(&a.script).into_iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_item(out, a, of, true);
                }
                out.push(b']');
            });
        }
    }
    out.extend_from_slice(b"}\n\n");
}

fn write_whole(out: &mut Vec<u8>, a: &Answer, of: Of) {
    let arguments = of == Of::Arguments;
    put!(out, if arguments { "\"{\\\"text\\\":\\\"" } else { "\"" });
    write_all(out, of, &a.mark, &a.script);
    put!(out, if arguments { "\\\"}\"" } else { "\"" });
}

fn write_id(out: &mut Vec<u8>, a: &Answer, of: Of) {
    put!(
        out,
        match of {
            Of::Text => "\"msg_",
            Of::Reasoning => "\"rs_",
            Of::Arguments => "\"fc_",
        },
        a.mark,
        b"\""
    );
}

fn write_place(out: &mut Vec<u8>, a: &Answer, of: Of) {
    out.extend_from_slice(b",\"item_id\":");
    write_id(out, a, of);
    put!(out, b",\"output_index\":", number(a.index(of)));
    match of {
        Of::Text => put!(out, b",\"content_index\":0"),
        Of::Reasoning => put!(out, b",\"summary_index\":0"),
        Of::Arguments => {}
    }
}

fn write_part(out: &mut Vec<u8>, a: &Answer, of: Of, done: bool) {
    put!(
        out,
        if of == Of::Reasoning {
            "{\"type\":\"summary_text\",\"text\":"
        } else {
            "{\"type\":\"output_text\",\"text\":"
        }
    );
    if done {
        write_whole(out, a, of);
    } else {
        out.extend_from_slice(b"\"\"");
    }
    put!(out, if of == Of::Text { ",\"annotations\":[],\"logprobs\":[]}" } else { "}" });
}

fn write_item(out: &mut Vec<u8>, a: &Answer, of: Of, done: bool) {
    out.extend_from_slice(b"{\"id\":");
    write_id(out, a, of);
    let status = if done { "completed" } else { "in_progress" };
    match of {
        Of::Text => {
            put!(out, b",\"type\":\"message\",\"status\":\"", status, b"\",\"role\":\"assistant\",\"content\":[")
        }
        Of::Reasoning => put!(out, b",\"type\":\"reasoning\",\"summary\":["),
        Of::Arguments => {
            put!(out, b",\"type\":\"function_call\",\"status\":\"", status, b"\",\"call_id\":\"call_", a.mark);
            put!(out, b"\",\"name\":\"look_up\",\"arguments\":");
            if done {
                write_whole(out, a, of);
            } else {
                out.extend_from_slice(b"\"\"");
            }
            out.push(b'}');
            return;
        }
    }
    if done {
        write_part(out, a, of, true);
    }
    out.extend_from_slice(b"]}");
}

fn write_response(out: &mut Vec<u8>, a: &Answer, status: &str, output: impl Fn(&mut Vec<u8>)) {
    put!(
        out,
        b"{\"id\":\"resp_",
        a.mark,
        b"\",\"object\":\"response\",\"created_at\":1700000000,\"status\":\"",
        status
    );
    put!(out, b"\",\"error\":null,\"incomplete_details\":null,\"model\":\"mock\",\"output\":");
    output(out);
    out.extend_from_slice(b",\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],\"usage\":");
    if status == "completed" {
        write_usage(out, a.tokens(), a.script.reasoning);
    } else {
        out.extend_from_slice(b"null");
    }
    out.push(b'}');
}

fn write_usage(out: &mut Vec<u8>, tokens: u32, reasoning: u32) {
    put!(
        out,
        b"{\"input_tokens\":",
        number(PROMPT_TOKENS),
        b",\"input_tokens_details\":{\"cached_tokens\":128},\"output_tokens\":"
    );
    put!(
        out,
        number(tokens),
        b",\"output_tokens_details\":{\"reasoning_tokens\":",
        number(reasoning),
        b"},\"total_tokens\":"
    );
    put!(out, number(tokens + PROMPT_TOKENS), b"}");
}

pub fn write_unary(out: &mut Vec<u8>, a: &Answer) {
    let start = out.len();
    let mut end = b"\",\"annotations\":[],\"logprobs\":[]}]}],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],\"usage\":".to_vec();
    write_usage(&mut end, a.unary_tokens(), 0);
    end.push(b'}');
    put!(
        out,
        b"{\"id\":\"resp_",
        a.mark,
        b"\",\"object\":\"response\",\"created_at\":1700000000,\"status\":\"completed\","
    );
    put!(out, b"\"error\":null,\"incomplete_details\":null,\"model\":\"mock\",\"output\":[{\"id\":\"msg_", a.mark);
    put!(out, b"\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"");
    write_answer_text(out, &a.mark, a.script.answer_bytes.saturating_sub(out.len() - start + end.len()));
    put!(out, end);
}

#[derive(Default)]
struct Event<'a> {
    kind: &'a [u8],
    number: Option<u64>,
    item: Item<'a>,
    item_id: Option<&'a [u8]>,
    /// Of the item among its answer's, and of the part among its item's.
    output_index: Option<u64>,
    part_index: Option<u64>,
    /// Of the response.
    id: Option<&'a [u8]>,
    delta: Option<&'a [u8]>,
    whole: Option<&'a [u8]>,
    status: &'a [u8],
    /// Of a response.
    items: Vec<Item<'a>>,
    counts: Counts,
}

/// One item of the output, as far as there is only one text in it.
#[derive(Default)]
struct Item<'a> {
    kind: &'a [u8],
    id: Option<&'a [u8]>,
    call_id: Option<&'a [u8]>,
    text: Option<&'a [u8]>,
    function: Option<&'a [u8]>,
}

impl Item<'_> {
    fn of(&self) -> Option<Of> {
        match self.kind {
            b"message" => Some(Of::Text),
            b"reasoning" => Some(Of::Reasoning),
            b"function_call" => Some(Of::Arguments),
            _ => None,
        }
    }
}

fn read_item<'a>(item: &mut Scan<'a>) -> Result<Item<'a>, Bad> {
    let mut found = Item::default();
    item.object(|item, key| {
        match key {
            b"type" => found.kind = item.string()?,
            b"id" => found.id = item.text()?,
            b"call_id" => found.call_id = item.text()?,
            b"name" => found.function = item.text()?,
            b"arguments" => found.text = item.text()?,
            b"content" | b"summary" if item.is_array() => {
                return item.array(|parts| {
                    if let Some(text) = read_text(parts)? {
                        found.text = Some(text);
                    }
                    Ok(())
                })
            }
            _ => return item.skip(),
        }
        Ok(())
    })?;
    Ok(found)
}

fn read_text<'a>(part: &mut Scan<'a>) -> Result<Option<&'a [u8]>, Bad> {
    let mut text = None;
    part.object(|part, key| {
        if key == b"text" {
            text = part.text()?;
            return Ok(());
        }
        part.skip()
    })?;
    Ok(text)
}

fn count(counts: &mut Counts, usage: &mut Scan<'_>) -> Result<(), Bad> {
    usage.object(|usage, key| {
        match key {
            b"output_tokens" => counts.answer = usage.number()?,
            b"input_tokens" => counts.prompt = usage.number()?,
            b"total_tokens" => counts.total = usage.number()?,
            _ => return usage.skip(),
        }
        Ok(())
    })
}

fn read(data: &[u8]) -> Result<Event<'_>, Bad> {
    let mut found = Event::default();
    let mut scan = Scan::new(data);
    scan.object(|top, key| {
        match key {
            b"type" => found.kind = top.string()?,
            b"sequence_number" => found.number = top.number()?,
            b"delta" => found.delta = top.text()?,
            b"text" | b"arguments" => found.whole = top.text()?,
            b"part" if top.is_object() => found.whole = read_text(top)?,
            b"item" => found.item = read_item(top)?,
            b"item_id" => found.item_id = top.text()?,
            b"output_index" => found.output_index = top.number()?,
            b"content_index" | b"summary_index" => found.part_index = top.number()?,
            b"response" => {
                return top.object(|response, key| match key {
                    b"status" => {
                        found.status = response.string()?;
                        Ok(())
                    }
                    b"id" => {
                        found.id = response.text()?;
                        Ok(())
                    }
                    b"output" if response.is_array() => response.array(|output| {
                        found.items.push(read_item(output)?);
                        Ok(())
                    }),
                    b"usage" if response.is_object() => count(&mut found.counts, response),
                    _ => response.skip(),
                })
            }
            _ => return top.skip(),
        }
        Ok(())
    })?;
    scan.end()?;
    Ok(found)
}

/// The kind of text that an event between `added` and `done` speaks of.
fn kind_of(name: &[u8]) -> Option<Of> {
    Some(match name {
        b"response.output_text.delta" | b"response.output_text.done" => Of::Text,
        b"response.content_part.added" | b"response.content_part.done" => return None,
        b"response.function_call_arguments.delta" | b"response.function_call_arguments.done" => Of::Arguments,
        _ => Of::Reasoning,
    })
}

pub fn check(s: &mut Stream, name: &[u8], data: &[u8]) -> Result<Seen, Fault> {
    let event = read(data).map_err(|Bad| garbled(data))?;
    if event.kind != name {
        return Err(Fault::new(Kind::Garbled, "the event's name is not its type", data));
    }
    let broken_off = name == b"response.incomplete" && s.pieces.exact();
    if matches!(name, b"error" | b"response.failed") || broken_off {
        return Err(told_error(data));
    }
    if name == b"response.output_text.delta" && s.open == Some(Of::Text) {
        // Before its number is looked at: text that is missing is told as that.
        let seen = s.take(Of::Text, event.delta.ok_or_else(|| misplaced(data))?)?;
        in_turn(s, &event, data)?;
        return in_place(s, &event, data).map(|()| seen);
    }
    in_turn(s, &event, data)?;
    if name != b"response.output_item.added" {
        in_place(s, &event, data)?;
    }
    match name {
        b"response.created" if !s.started => s.started = true,
        _ if !s.started => return Err(misplaced(data)),
        b"response.in_progress" | b"response.queued" if s.open.is_none() && !s.pieces.any() => {}
        b"response.output_item.added" if s.open.is_none() => {
            s.open = Some(event.item.of().ok_or_else(|| misplaced(data))?);
            s.block_ids.push(event.item.id.unwrap_or_default().to_vec());
            s.at(event.output_index, s.blocks, data)?;
            s.opens_empty(event.item.text, data)?;
            is_block(s, s.blocks, &event.item, data)?;
        }
        b"response.output_item.done" => {
            let of = s.open.take().ok_or_else(|| misplaced(data))?;
            if event.item.of() != Some(of) {
                return Err(misplaced(data));
            }
            s.pieces.complete(of)?;
            whole(s, s.blocks, &event.item, data)?;
            s.blocks += 1;
        }
        // A model's own answer may be as long as it may be, and is over then.
        b"response.completed" | b"response.incomplete"
            if s.open.is_none() && name.strip_prefix(b"response.") == Some(event.status) =>
        {
            s.finish(b"", [b""; 2], data)?;
            if s.pieces.exact() && event.items.len() != s.block_ids.len() {
                return Err(Fault::new(Kind::Content, "not the items that came", data));
            }
            (0..).zip(&event.items).try_for_each(|(at, item)| whole(s, at, item, data))?;
            s.count(event.counts, data)?;
            s.done = true;
        }
        b"response.content_part.added" | b"response.reasoning_summary_part.added" if s.open.is_some() => {
            s.opens_empty(event.whole, data)?;
        }
        b"response.content_part.done" | b"response.reasoning_summary_part.done" if s.open.is_some() => {
            is_whole(s, s.open.unwrap_or(Of::Text), event.whole, data)?;
        }
        b"response.reasoning_summary_text.delta"
        | b"response.reasoning_text.delta"
        | b"response.function_call_arguments.delta"
            if s.open == kind_of(name) =>
        {
            return s.take(kind_of(name).unwrap_or(Of::Text), event.delta.ok_or_else(|| misplaced(data))?);
        }
        b"response.output_text.done"
        | b"response.reasoning_summary_text.done"
        | b"response.reasoning_text.done"
        | b"response.function_call_arguments.done"
            if s.open == kind_of(name) =>
        {
            let of = kind_of(name).unwrap_or(Of::Text);
            s.pieces.complete(of)?;
            if !event.whole.map_or(false, |whole| s.pieces.is_whole(of, whole)) {
                return Err(Fault::new(Kind::Content, "not the whole text", data));
            }
        }
        _ => return Err(misplaced(data)),
    }
    Ok(Seen::Other)
}

/// An item that is over is the one that began as this block, and has all of its text.
fn whole(s: &mut Stream, block: u64, item: &Item<'_>, data: &[u8]) -> Result<(), Fault> {
    is_block(s, block, item, data)?;
    match item.of() {
        Some(of) => is_whole(s, of, item.text, data),
        None if s.pieces.exact() => Err(misplaced(data)),
        None => Ok(()),
    }
}

/// An item goes by the same name whenever it is spoken of, and calls who is to be called.
fn is_block(s: &mut Stream, block: u64, item: &Item<'_>, data: &[u8]) -> Result<(), Fault> {
    named(s, block, item.id, data)?;
    if item.of() == Some(Of::Arguments) {
        s.is_call(item.function, item.call_id, data)?;
    }
    Ok(())
}

fn named(s: &Stream, block: u64, id: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
    let known = s.block_ids.get(block as usize).map(|id| &id[..]).filter(|id| !id.is_empty());
    if s.pieces.exact() && (known.is_none() || id != known) {
        return Err(Fault::new(Kind::Content, "another item's identifier, or none", data));
    }
    Ok(())
}

/// An event names the answer, or the item and the part, that it is of.
fn in_place(s: &mut Stream, event: &Event<'_>, data: &[u8]) -> Result<(), Fault> {
    match event.kind {
        b"response.created" | b"response.queued" | b"response.in_progress" | b"response.completed" => {
            return s.is_of(event.id, data);
        }
        b"response.output_item.done" => {}
        b"response.function_call_arguments.delta" | b"response.function_call_arguments.done" => {
            named(s, s.blocks, event.item_id, data)?;
        }
        _ => {
            named(s, s.blocks, event.item_id, data)?;
            s.at(event.part_index, 0, data)?;
        }
    }
    s.at(event.output_index, s.blocks, data)
}

fn is_whole(s: &Stream, of: Of, text: Option<&[u8]>, data: &[u8]) -> Result<(), Fault> {
    // Reasoning may be for nobody to read, and an answer of nothing has no text.
    let may_lack = !s.pieces.exact() || of == Of::Reasoning || !s.pieces.wants(of);
    if text.map_or(may_lack, |text| s.pieces.is_whole(of, text)) {
        return Ok(());
    }
    Err(Fault::new(Kind::Content, "not the whole text", data))
}

fn in_turn(s: &mut Stream, event: &Event<'_>, data: &[u8]) -> Result<(), Fault> {
    if event.number != Some(s.next) {
        return Err(Fault::new(Kind::Order, "not the next sequence number", data));
    }
    s.next += 1;
    Ok(())
}

pub fn read_unary(data: &[u8]) -> Result<Unary<'_>, Bad> {
    let mut found = Unary::default();
    let mut scan = Scan::new(data);
    scan.object(|top, key| match key {
        b"status" => {
            found.reason = Some(top.string()?).filter(|status| *status == b"completed");
            Ok(())
        }
        b"id" => {
            found.id = top.text()?;
            Ok(())
        }
        b"output" => top.array(|output| {
            output.object(|item, key| {
                if key != b"content" || !item.is_array() {
                    return item.skip();
                }
                item.array(|content| {
                    content.object(|part, key| {
                        if key == b"text" {
                            found.text = part.text()?;
                            return Ok(());
                        }
                        part.skip()
                    })
                })
            })
        }),
        b"usage" if top.is_object() => count(&mut found.counts, top),
        _ => top.skip(),
    })?;
    scan.end()?;
    Ok(found)
}
