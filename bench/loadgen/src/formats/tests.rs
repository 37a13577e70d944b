//! What the mock writes, the checks take; and whatever is wrong with it is told.

use super::*;
use crate::sse::Lines;

const MARK: &Mark = b"00000001";
const FORMATS: [Format; 4] = [Format::Chat, Format::Messages, Format::Responses, Format::Gemini];
const WORDS: [&str; 5] = ["s3-0", "s3-0.r2.t2", "s0-0.t1", "s1-0.x200", "s0-0"];

fn events(format: Format, word: &str) -> Vec<Vec<u8>> {
    let answer = Answer { format, mark: *MARK, script: Script::parse(word).unwrap() };
    let mut all = Vec::new();
    for (part, count) in answer.sections() {
        for k in 0..count {
            let mut event = Vec::new();
            answer.write_event(&mut event, part, k, all.len() as u32);
            all.push(event);
        }
    }
    all
}

fn read(format: Format, word: &str, events: &[Vec<u8>]) -> Result<(), Kind> {
    let script = Script::parse(word).unwrap();
    let mut stream = Stream::new(format, Pieces::new(*MARK, script, true));
    let mut lines = Lines::default();
    let told = lines.feed(&events.concat(), |name, data| stream.event(name, data).map(|_| ()));
    told.and_then(|()| lines.end()).and_then(|()| stream.end()).map_err(|fault| fault.kind)
}

#[test]
fn every_format_reads_what_it_writes() {
    for format in FORMATS {
        for word in WORDS {
            assert_eq!(read(format, word, &events(format, word)), Ok(()), "{format:?} {word}");
        }
    }
}

#[test]
fn an_event_that_is_left_out_is_missed() {
    for format in FORMATS {
        for word in WORDS {
            let all = events(format, word);
            for gone in 0..all.len() {
                let event = String::from_utf8_lossy(&all[gone]);
                // One that only says what a translation may leave out.
                let optional = event.contains("signature_delta");
                let mut rest = all.clone();
                rest.remove(gone);
                assert!(optional || read(format, word, &rest).is_err(), "{format:?} {word} {event}");
            }
        }
    }
}

#[test]
fn an_event_with_text_that_comes_twice_or_late_is_told() {
    for format in FORMATS {
        let all = events(format, "s3-0.r2.t2");
        let has_text = |event: &[u8]| {
            [" think ", " token ", " field "].iter().any(|tail| String::from_utf8_lossy(event).contains(tail))
        };
        let texts: Vec<usize> = (0..all.len()).filter(|i| has_text(&all[*i])).collect();
        assert!(texts.len() >= 6, "{format:?}");
        for &at in &texts {
            let mut twice = all.clone();
            twice.insert(at, all[at].clone());
            assert!(read(format, "s3-0.r2.t2", &twice).is_err(), "{format:?} twice {at}");
            // One that only announces may change places with a text.
            if texts.contains(&(at + 1)) {
                let mut late = all.clone();
                late.swap(at, at + 1);
                assert!(read(format, "s3-0.r2.t2", &late).is_err(), "{format:?} late {at}");
            }
        }
    }
}

#[test]
fn each_fault_has_its_kind() {
    for format in FORMATS {
        let all = events(format, "s3-0");
        let text = all.iter().position(|event| String::from_utf8_lossy(event).contains("-000001")).unwrap();
        let with = |i: usize, event: Vec<u8>| {
            let mut other = all.clone();
            other[i] = event;
            read(format, "s3-0", &other)
        };
        let altered =
            |from: &str, to: &str| with(text, String::from_utf8_lossy(&all[text]).replace(from, to).into_bytes());
        assert_eq!(altered("00000001-", "00000002-"), Err(Kind::Mixed), "{format:?}");
        assert_eq!(altered("-000001", "-000002"), Err(Kind::Order), "{format:?}");
        assert_eq!(altered("token", "taken"), Err(Kind::Content), "{format:?}");
        assert_eq!(altered("}", ""), Err(Kind::Garbled), "{format:?}");
        let mut error = Vec::new();
        Answer { format, mark: *MARK, script: Script::default() }.write_error_event(&mut error);
        assert_eq!(with(text, error), Err(Kind::ErrorEvent), "{format:?}");
        assert_eq!(read(format, "s3-0", &all[..all.len() - 1]), Err(Kind::Terminal), "{format:?}");
        assert!(read(format, "s2-0", &all).is_err(), "{format:?} one too many");
        assert_eq!(read(format, "s4-0", &all), Err(Kind::Count), "{format:?} one too few");
        let again: Vec<Vec<u8>> = all.iter().chain(&all[all.len() - 1..]).cloned().collect();
        assert_eq!(read(format, "s3-0", &again), Err(Kind::Trailing), "{format:?}");
        let miscounted = events(format, "s3-0.usage");
        assert_eq!(read(format, "s3-0", &miscounted), Err(Kind::Usage), "{format:?}");
    }
}

#[test]
fn answers_that_are_no_streams_are_checked_too() {
    for format in FORMATS {
        let unary = |word: &str| {
            let mut body = Vec::new();
            Answer { format, mark: *MARK, script: Script::parse(word).unwrap() }.write_unary(&mut body);
            body
        };
        let kind = |body: &[u8], mark: &Mark| check_unary(format, body, mark, true).err().map(|fault| fault.kind);
        let body = unary("u2048");
        assert_eq!(body.len(), 2048, "{format:?}");
        assert_eq!(kind(&body, MARK), None, "{format:?}");
        assert_eq!(kind(&body, b"00000002"), Some(Kind::Mixed), "{format:?}");
        assert_eq!(kind(&body[..2000], MARK), Some(Kind::Garbled), "{format:?}");
        assert_eq!(kind(&unary("u2048.usage"), MARK), Some(Kind::Usage), "{format:?}");
    }
}

#[test]
fn every_copy_of_a_text_is_looked_at() {
    // Responses says each text three times more when it is over; SDKs hand on the last one.
    let all = events(Format::Responses, "s3-0.r2.t2");
    let mut copies = 0;
    for at in 0..all.len() {
        let event = String::from_utf8_lossy(&all[at]);
        for (from, to, kind) in [
            ("00000001-000001 ", "00000002-000001 ", Kind::Content),
            ("-000001 token ", "", Kind::Content),
            ("\"name\":\"look_up\"", "\"name\":\"look_down\"", Kind::Content),
        ] {
            if event.contains(from) && !event.contains(".delta") {
                copies += 1;
                let mut other = all.clone();
                other[at] = event.replace(from, to).into_bytes();
                assert_eq!(read(Format::Responses, "s3-0.r2.t2", &other), Err(kind), "{from} {event}");
            }
        }
    }
    assert!(copies >= 12, "{copies}");
}

#[test]
fn why_it_ended_what_it_cost_and_who_is_called_are_looked_at() {
    let wrong = [
        (Format::Chat, "\"tool_calls\"}", "\"stop\"}", Kind::Content),
        (Format::Chat, "\"tool_calls\"}", "\"length\"}", Kind::Content),
        (Format::Messages, "\"tool_use\",\"stop_sequence\"", "\"max_tokens\",\"stop_sequence\"", Kind::Content),
        (Format::Gemini, "\"STOP\"", "\"MAX_TOKENS\"", Kind::Content),
        (Format::Responses, "\"status\":\"completed\",\"error\"", "\"status\":\"failed\",\"error\"", Kind::Content),
        (Format::Chat, "\"prompt_tokens\":250", "\"prompt_tokens\":0", Kind::Usage),
        (Format::Messages, "\"input_tokens\":250", "\"input_tokens\":0", Kind::Usage),
        (Format::Gemini, "\"promptTokenCount\":250", "\"promptTokenCount\":25", Kind::Usage),
        (Format::Responses, "\"input_tokens\":250", "\"input_tokens\":122", Kind::Usage),
        (Format::Chat, "\"name\":\"look_up\"", "\"name\":\"\"", Kind::Content),
        (Format::Messages, "\"name\":\"look_up\"", "\"name\":\"look\"", Kind::Content),
        (Format::Gemini, "\"name\":\"look_up\"", "\"name\":\"look\"", Kind::Content),
    ];
    for (format, from, to, kind) in wrong {
        let mut all = events(format, "s3-0.r2.t2");
        let text = String::from_utf8_lossy(&all.concat()).into_owned();
        assert!(text.contains(from), "{format:?} {from}");
        for event in &mut all {
            *event = String::from_utf8_lossy(event).replace(from, to).into_bytes();
        }
        assert_eq!(read(format, "s3-0.r2.t2", &all), Err(kind), "{format:?} {from}");
    }
}

#[test]
fn an_answer_that_was_shortened_is_told() {
    for format in FORMATS {
        let mut body = Vec::new();
        Answer { format, mark: *MARK, script: Script::parse("u2048").unwrap() }.write_unary(&mut body);
        let text = String::from_utf8(body).unwrap();
        let kind = |text: &str| check_unary(format, text.as_bytes(), MARK, true).err().map(|fault| fault.kind);
        let end = text.find(" end.").unwrap();
        let start = end - 200;
        assert_eq!(kind(&[&text[..end], &text[end + 5..]].concat()), Some(Kind::Content), "{format:?}");
        assert_eq!(kind(&[&text[..start], &text[end + 5..]].concat()), Some(Kind::Content), "{format:?}");
        for why in ["\"stop\"", "\"end_turn\"", "\"STOP\""] {
            if text.contains(why) {
                assert_eq!(kind(&text.replace(why, "\"length\"")), Some(Kind::Content), "{format:?}");
            }
        }
        assert_eq!(kind(&text.replace("250", "251").replace(":122", ":121")), Some(Kind::Usage), "{format:?}");
    }
}

/// Where the values stand that are strings, numbers or words, and the names of the members that they are.
fn values(json: &str) -> Vec<(&str, std::ops::Range<usize>)> {
    let (mut found, mut name, mut at) = (Vec::new(), "", 0);
    while at < json.len() {
        let rest = &json[at..];
        let bare = rest.find(|letter: char| ",]}".contains(letter)).unwrap_or(rest.len());
        let size = match rest.as_bytes()[0] {
            b'"' => {
                let mut end = 1;
                while rest.as_bytes()[end] != b'"' {
                    end += 1 + usize::from(rest.as_bytes()[end] == b'\\');
                }
                end + 1
            }
            b'{' | b'}' | b'[' | b']' | b',' | b':' => {
                at += 1;
                continue;
            }
            _ => bare,
        };
        if json[at + size..].starts_with(':') {
            name = &json[at + 1..at + size - 1];
        } else {
            found.push((name, at..at + size));
        }
        at += size;
    }
    found
}

/// What a gateway may say in its own way: labels, and of the count what only some formats tell apart.
const OWN: [&str; 17] = [
    "created",
    "created_at",
    "model",
    "modelVersion",
    "object",
    "role",
    "status",
    "signature",
    "stop_sequence",
    "error",
    "incomplete_details",
    "parallel_tool_calls",
    "tool_choice",
    "cached_tokens",
    "reasoning_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
];

#[test]
fn every_value_that_clients_go_by_is_looked_at() {
    let mut spoilt = 0;
    for format in FORMATS {
        let word = "s3-0.r2.t2";
        let all = events(format, word);
        let whole = String::from_utf8_lossy(&all.concat()).into_owned();
        for at in 0..all.len() {
            let event = String::from_utf8_lossy(&all[at]).into_owned();
            let json = event.find("data: ").unwrap() + 6;
            if event[json..].starts_with("[DONE]") {
                continue;
            }
            for (name, place) in values(event[json..].trim_end()) {
                let value = &event[json..][place.clone()];
                let said_once = whole.matches(value).count() == 1;
                let mut others = vec!["\"\"".to_string()];
                if let Ok(number) = value.parse::<u64>() {
                    others = vec![(number + 1).to_string()];
                    // Gemini need not say an index where it is 0.
                    if format != Format::Gemini {
                        others.push("null".into());
                    }
                } else if !said_once {
                    others.push(value.replace("0000", "0009"));
                }
                // The beginning says some things that only the end knows; what only names a kind may be clear without.
                let early = value == "null" || (name == "output_tokens" && value == "1");
                let kind = name == "type"
                    && !["\"response", "\"content_block", "\"message_"].iter().any(|k| value.starts_with(k));
                if OWN.contains(&name) || early || kind {
                    continue;
                }
                for other in others.iter().filter(|other| *other != value) {
                    let mut wrong = all.clone();
                    let (before, behind) = (&event[..json + place.start], &event[json + place.end..]);
                    wrong[at] = [before, other, behind].concat().into_bytes();
                    spoilt += 1;
                    assert!(read(format, word, &wrong).is_err(), "{format:?} {name}: {other} for {value} in {event}");
                }
            }
        }
    }
    assert!(spoilt > 350, "{spoilt}");
}

#[test]
fn the_answers_of_models_pass_by_their_form() {
    // What the gateway made of each upstream's quirks for each client, but for what its upstream left out or broke off,
    // and what no request of this program is answered with.
    const NOT: [&str; 6] = [
        "interleaved-calls/client.openai-responses",
        "legacy-function-call/client.openai-chat",
        "no-finish-reason/client.openai-chat",
        "free-text-call/client.openai-responses",
        "refusal/client.openai-responses",
        "web-search/client.openai-responses",
    ];
    let vectors = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let named = ["openai-chat", "anthropic-messages", "openai-responses", "google-gemini"].iter().zip(FORMATS);
    let mut passed = 0;
    for (client, format) in named {
        for folder in ["openai-chat", "anthropic-messages", "openai-responses", "google-gemini", "bedrock-converse"] {
            for case in std::fs::read_dir(vectors.join(folder)).unwrap() {
                let path = case.unwrap().path().join(format!("client.{client}.sse"));
                let text = std::fs::read_to_string(&path).unwrap();
                let mut stream = Stream::new(format, Pieces::new(*MARK, Script::default(), false));
                let mut lines = Lines::default();
                let told = lines.feed(text.as_bytes(), |name, data| stream.event(name, data).map(|_| ()));
                match told.and_then(|()| lines.end()).and_then(|()| stream.end()) {
                    Ok(()) => passed += 1,
                    Err(fault) => assert!(
                        fault.kind == Kind::ErrorEvent || NOT.iter().any(|case| path.to_string_lossy().contains(case)),
                        "{path:?}: {fault:?}"
                    ),
                }
            }
        }
    }
    assert!(passed > 200, "{passed}");
}
