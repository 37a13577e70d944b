//! Requests as agents send them: a conversation of text with line breaks and quotes, the mark in its last turn.

use crate::formats::Format;
use crate::pieces::{Mark, MARK};
use std::fmt::Write;

const SYSTEM: &str = "You are a careful programmer.";
/// Of a turn where only the size of the whole is given.
const LINES: usize = 32;

pub struct Shape {
    pub format: Format,
    pub streams: bool,
    pub bytes: usize,
    /// 0: as many as the size takes.
    pub messages: usize,
    pub tools: usize,
}

/// What every request of a run has in common, around its mark.
pub struct Request {
    pub before: Vec<u8>,
    pub after: Vec<u8>,
}

impl Request {
    pub fn new(shape: &Shape, model: &str, head: &str) -> Self {
        let (before, after) = body(shape, model);
        let length = before.len() + MARK + after.len();
        let head = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        Request { before: [head.as_bytes(), before.as_bytes()].concat(), after: after.into_bytes() }
    }

    pub fn len(&self) -> usize {
        self.before.len() + MARK + self.after.len()
    }

    /// What is left to send once `sent` bytes are gone.
    pub fn rest<'a>(&'a self, mark: &'a Mark, sent: usize) -> [&'a [u8]; 3] {
        let mut gone = sent;
        [&self.before[..], mark, &self.after[..]].map(|part| {
            let skip = gone.min(part.len());
            gone -= skip;
            &part[skip..]
        })
    }
}

/// A JSON body up to the mark, and from there on.
fn body(shape: &Shape, model: &str) -> (String, String) {
    let format = shape.format;
    let mut text = String::with_capacity(shape.bytes + 4096);
    let model = crate::json::quoted(model);
    let tools = tools(format, shape.tools);
    let _ = match format {
        Format::Chat => write!(text, "{{\"model\":{model},\"max_tokens\":4096,{tools}\"messages\":[{{\"role\":\"system\",\"content\":\"{SYSTEM}\"}},"),
        Format::Messages => write!(
            text,
            "{{\"model\":{model},\"max_tokens\":4096,{tools}\"system\":[{{\"type\":\"text\",\"text\":\"{SYSTEM}\"}}],\"messages\":["
        ),
        Format::Responses => write!(text, "{{\"model\":{model},\"max_output_tokens\":4096,{tools}\"instructions\":\"{SYSTEM}\",\"input\":["),
        Format::Gemini => write!(
            text,
            "{{\"generationConfig\":{{\"maxOutputTokens\":4096}},{tools}\"systemInstruction\":{{\"parts\":[{{\"text\":\"{SYSTEM}\"}}]}},\"contents\":["
        ),
    };
    let earlier = shape.messages.saturating_sub(1);
    let each = shape.bytes.saturating_sub(text.len() + 150).checked_div(earlier).unwrap_or(0);
    let mut turn = 0;
    loop {
        let start = text.len();
        let full = match shape.messages {
            0 => start + 400 >= shape.bytes,
            _ => turn == earlier,
        };
        if full {
            break;
        }
        open_turn(&mut text, format, turn % 2 == 0);
        for line in 0.. {
            let enough = match shape.messages {
                0 => line == LINES || text.len() + 300 >= shape.bytes,
                _ => line > 0 && text.len() + 130 >= start + each,
            };
            if enough {
                break;
            }
            let _ = write!(text, "{line:4}: if (value == \\\"{turn}\\\") return lookup(table, value); // why\\n");
        }
        text.push_str(close_turn(format));
        text.push(',');
        turn += 1;
    }
    open_turn(&mut text, format, true);
    text.push_str("mark=");
    let stream = match format {
        Format::Gemini => "",
        _ if !shape.streams => "",
        Format::Chat => ",\"stream\":true,\"stream_options\":{\"include_usage\":true}",
        _ => ",\"stream\":true",
    };
    (text, format!("{}]{stream}}}", close_turn(format)))
}

fn open_turn(text: &mut String, format: Format, user: bool) {
    let (role, model) = if user { ("user", "user") } else { ("assistant", "model") };
    let _ = match format {
        Format::Chat => write!(text, "{{\"role\":\"{role}\",\"content\":\""),
        Format::Messages => write!(text, "{{\"role\":\"{role}\",\"content\":[{{\"type\":\"text\",\"text\":\""),
        Format::Responses => {
            let kind = if user { "input_text" } else { "output_text" };
            write!(text, "{{\"type\":\"message\",\"role\":\"{role}\",\"content\":[{{\"type\":\"{kind}\",\"text\":\"")
        }
        Format::Gemini => write!(text, "{{\"role\":\"{model}\",\"parts\":[{{\"text\":\""),
    };
}

fn close_turn(format: Format) -> &'static str {
    match format {
        Format::Chat => "\"}",
        _ => "\"}]}",
    }
}

/// The member that declares `count` tools, with its comma.
fn tools(format: Format, count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    let all: Vec<String> = (0..count)
        .map(|i| {
            let about = format!("Look up entry {i} of the table and say what stands there; an entry that is not there is an error.");
            let schema = "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"What to look for\"},\
                          \"limit\":{\"type\":\"integer\",\"description\":\"How many\"}},\"required\":[\"text\"]}";
            let name = if i == 0 { "look_up".to_string() } else { format!("look_up_{i}") };
            match format {
                Format::Chat => format!(
                    "{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\",\"description\":\"{about}\",\"parameters\":{schema}}}}}"
                ),
                Format::Messages => format!("{{\"name\":\"{name}\",\"description\":\"{about}\",\"input_schema\":{schema}}}"),
                Format::Responses => format!("{{\"type\":\"function\",\"name\":\"{name}\",\"description\":\"{about}\",\"parameters\":{schema}}}"),
                Format::Gemini => format!("{{\"name\":\"{name}\",\"description\":\"{about}\",\"parameters\":{schema}}}"),
            }
        })
        .collect();
    let all = all.join(",");
    match format {
        Format::Gemini => format!("\"tools\":[{{\"functionDeclarations\":[{all}]}}],"),
        _ => format!("\"tools\":[{all}],"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scan;
    use crate::sys::find;

    const FORMATS: [Format; 4] = [Format::Chat, Format::Messages, Format::Responses, Format::Gemini];

    #[test]
    fn requests_are_json_of_about_the_size_asked_for() {
        for format in FORMATS {
            for (bytes, messages, tools) in
                [(1024, 0, 0), (204_800, 0, 0), (204_800, 50, 0), (40_000, 3, 20), (0, 1, 0), (1_000_000, 500, 100)]
            {
                let (before, after) = body(&Shape { format, streams: true, bytes, messages, tools }, "m\"");
                let whole = format!("{before}00000001{after}");
                let mut scan = Scan::new(whole.as_bytes());
                assert!(scan.skip().and_then(|()| scan.end()).is_ok(), "{format:?} {whole}");
                assert_eq!(
                    whole.matches("\"role\":").count() - usize::from(format == Format::Chat),
                    if messages == 0 {
                        whole.matches("\"role\":").count() - usize::from(format == Format::Chat)
                    } else {
                        messages
                    }
                );
                let fits = (whole.len() as f64 - bytes as f64).abs() < 600.0 + bytes as f64 / 10.0;
                assert!(fits || bytes == 0 || tools == 100, "{format:?} {bytes} {messages} {tools}: {}", whole.len());
            }
        }
    }

    #[test]
    fn what_is_left_to_send_follows_what_was_sent() {
        let shape = Shape { format: Format::Chat, streams: false, bytes: 600, messages: 0, tools: 0 };
        let request = Request::new(&shape, "m", "POST / HTTP/1.1\r\n");
        let whole = request.rest(b"12345678", 0).concat();
        assert_eq!(whole.len(), request.len());
        assert!(find(&whole, b"mark=12345678\"").is_some());
        for sent in 0..whole.len() {
            assert_eq!(request.rest(b"12345678", sent).concat(), &whole[sent..]);
        }
    }
}
