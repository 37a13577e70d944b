//! What a request asks the mock for. Its body is not parsed: a few members are looked for, where they are nearly always.

use crate::formats::Format;
use crate::pieces::{Mark, MARK};
use crate::sys::{find, find_byte};

/// Marks and models stand near an end of the body, nearly always.
const NEAR: usize = 512;

/// Looked for near the end first, where it is unless somebody put the body's members into another order.
pub fn mark(body: &[u8]) -> Mark {
    let tail = &body[body.len().saturating_sub(NEAR)..];
    let after = |text: &[u8]| {
        let at = find(text, b"mark=")? + 5;
        text.get(at..at + MARK).and_then(|mark| Mark::try_from(mark).ok())
    };
    after(tail).or_else(|| after(body)).unwrap_or(*b"--------")
}

pub fn format_of(path: &str) -> Option<Format> {
    if path.contains("/messages") {
        Some(Format::Messages)
    } else if path.contains("/responses") {
        Some(Format::Responses)
    } else if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
        Some(Format::Gemini)
    } else if path.contains("/chat/completions") || path.contains("/embeddings") {
        Some(Format::Chat)
    } else {
        None
    }
}

/// The model's name without what stands before a slash in it; empty where there is none.
pub fn model<'a>(path: &'a str, body: &'a [u8]) -> &'a str {
    let name = match path.rsplit_once("/models/") {
        Some((_, rest)) => rest.split(':').next().unwrap_or_default(),
        None => string_member(body, b"\"model\"").unwrap_or_default(),
    };
    name.rsplit('/').next().unwrap_or_default()
}

/// What stands behind a member's name, its colon and blanks.
fn member<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, end) = (&body[..body.len().min(NEAR)], &body[body.len().saturating_sub(NEAR)..]);
    [start, end, body].iter().find_map(|part| {
        let rest = &part[find(part, name)? + name.len()..];
        let value = rest.iter().position(|byte| !b" \t\r\n:".contains(byte))?;
        Some(&rest[value..])
    })
}

fn string_member<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let value = member(body, name)?.strip_prefix(b"\"")?;
    std::str::from_utf8(&value[..find_byte(value, b'"')?]).ok()
}

pub fn wants_stream(format: Format, path: &str, body: &[u8]) -> bool {
    match format {
        Format::Gemini => path.contains(":stream"),
        _ => member(body, b"\"stream\"").map_or(false, |value| value.starts_with(b"true")),
    }
}

/// About four bytes to a token.
pub fn count_of_tokens(path: &str, body: &[u8]) -> Option<String> {
    let tokens = body.len() / 4;
    if path.ends_with("/count_tokens") {
        Some(format!("{{\"input_tokens\":{tokens}}}"))
    } else if path.ends_with("/responses/input_tokens") {
        Some(format!("{{\"object\":\"response.input_tokens\",\"input_tokens\":{tokens}}}"))
    } else if path.ends_with(":countTokens") {
        Some(format!("{{\"totalTokens\":{tokens}}}"))
    } else {
        None
    }
}

pub const EMBEDDING: &[u8] = b"{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.125,-0.25,0.5,-0.0625,0.75,0.03125,-0.5,0.25]}],\"model\":\"mock\",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_wherever_its_members_stand() {
        let filler = "x".repeat(2000);
        let bodies = [
            "{\"model\":\"s200-20\",\"stream\":true,\"messages\":\"mark=12345678\"}".to_string(),
            format!("{{\"model\": \"openai/s200-20\", \"f\":\"{filler}mark=12345678{filler}\", \"stream\" : true,\"g\":\"{filler}\"}}"),
            format!("{{\"f\":\"{filler}\",\"stream\":true,\"mark\":\"mark=12345678\",\"model\":\"s200-20\"}}"),
        ];
        for body in &bodies {
            assert_eq!(model("/v1/chat/completions", body.as_bytes()), "s200-20");
            assert_eq!(&mark(body.as_bytes()), b"12345678");
            assert!(wants_stream(Format::Chat, "/v1/chat/completions", body.as_bytes()));
        }
        assert_eq!(model("/v1beta/models/s200-20.r5:streamGenerateContent", b"{}"), "s200-20.r5");
        assert_eq!(&mark(b"{}"), b"--------");
    }

    #[test]
    fn paths_name_formats() {
        assert_eq!(format_of("/u1/v1/chat/completions"), Some(Format::Chat));
        assert_eq!(format_of("/v1/messages"), Some(Format::Messages));
        assert_eq!(format_of("/v1/responses"), Some(Format::Responses));
        assert_eq!(format_of("/v1beta/models/m:streamGenerateContent"), Some(Format::Gemini));
        assert_eq!(format_of("/favicon.ico"), None);
        assert!(count_of_tokens("/v1/messages/count_tokens", b"12345678").unwrap().contains(":2"));
    }
}
