//! The command line: what is asked for, and what is wrong with it.

use crate::body::{Request, Shape};
use crate::formats::Format;
use crate::load::Plan;
use crate::reader::Expected;
use crate::script::Script;
use std::net::{SocketAddr, ToSocketAddrs};

pub const HELP: &str = "\
arbiter-loadgen load --url URL --model MODEL --format chat|messages|responses|gemini [OPTIONS]
    Ask, read, check every event. Exits 0 where every answer was right, 1 where one was not.

    --url URL             http://HOST:PORT/PATH; {model} in the path becomes the model's name
    --format FORMAT       chat, messages, responses or gemini (chat)
    --connections N       (32) at most, in the open loop
    --requests N          stop after so many; --duration S: begin none after so many seconds (one of them is needed)
    --rate R              open loop: R requests a second whatever becomes of them; otherwise each connection asks again
                          when it has its answer
    --arrivals HOW        even or poisson (even), of the open loop; --seed N (1) makes another chance
    --think-ms N          between an answer and the next request of its connection (0); --gap-ms is the same
    --spread-ms N         the connections' first requests are spread over so long (0)
    --warmup S            requests due before are checked and counted, not timed (0)
    --timeout S           give up on an answer when nothing comes for so long (60)
    --limit S             give up on everything that is not over after so long

    --body-bytes N        about so long a request (1024)
    --messages N          in so many messages (as many as the size takes)
    --tools N             with so many tools declared (0)
    --key KEY             sent as the format sends it (bench-key)
    --header 'NAME: V'    one more; may be repeated

    --answer SCRIPT       what the mock will answer, as its grammar has it; without it the model's name or the path's first
                          segment say it. `any` and `any-stream`: not the mock's texts, only the format is checked
    --events N            so many events with text in the stream (0: an answer that is no stream); over the script's number
    --json                one JSON object on stdout, not a table

arbiter-loadgen mock [--host IP] [--port N] [--answer SCRIPT]
    Serve as an upstream of all formats until killed; the first line on stdout is {\"port\": N}.

    --host IP             (127.0.0.1)
    --port N              0: any (0)
    --answer SCRIPT       for streams whose request names no script (s50-10)

arbiter-loadgen scripts
    Print the grammar of SCRIPT.
";

/// `--name value` and `--name=value`, in order.
struct Words {
    all: Vec<(String, Option<String>)>,
}

pub struct LoadOptions {
    pub plan: Plan,
    pub json: bool,
}

pub struct MockOptions {
    pub at: SocketAddr,
    pub answer: Script,
}

const FLAGS: [&str; 1] = ["json"];
/// As many as there are ports; a request has to fit into memory, and its parts into it.
const MOST_CONNECTIONS: u64 = 65_535;
const MOST_BYTES: u64 = 1 << 30;
const MOST_PARTS: u64 = 1_000_000;
const A_DAY_MS: u64 = 86_400_000;

impl Words {
    fn read(args: &[String], known: &[&str]) -> Result<Self, String> {
        let mut all = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let word = arg.strip_prefix("--").ok_or(format!("what is {arg:?}?"))?;
            let (name, mut value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (word, None),
            };
            if !known.contains(&name) {
                return Err(format!("there is no option --{name}"));
            }
            if value.is_none() && !FLAGS.contains(&name) {
                value = Some(args.next().ok_or(format!("--{name} needs a value"))?.clone());
            }
            all.push((name.to_string(), value));
        }
        Ok(Words { all })
    }

    /// The last one given counts.
    fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().rev().find(|(given, _)| given == name).and_then(|(_, value)| value.as_deref())
    }

    fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(given, _)| given == name)
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, String> {
        self.get(name).map(|text| text.parse().map_err(|_| format!("--{name} {text}: not such a number"))).transpose()
    }

    /// A whole number of which more cannot be meant.
    fn up_to(&self, name: &str, most: u64) -> Result<Option<u64>, String> {
        match self.number(name)? {
            Some(number) if number > most => Err(format!("--{name} {number}: more than {most}")),
            other => Ok(other),
        }
    }

    fn seconds_us(&self, name: &str) -> Result<Option<u64>, String> {
        let seconds: Option<f64> = self.number(name)?;
        match seconds {
            Some(s) if !(0.0..1e9).contains(&s) => Err(format!("--{name} {s}: not such a time")),
            other => Ok(other.map(|s| (s * 1e6) as u64)),
        }
    }
}

const MOCK_OPTIONS: [&str; 3] = ["host", "port", "answer"];

pub fn mock(args: &[String]) -> Result<MockOptions, String> {
    let words = Words::read(args, &MOCK_OPTIONS)?;
    let host = words.get("host").unwrap_or("127.0.0.1");
    let ip = host.parse().map_err(|_| format!("--host {host}: not an address"))?;
    let word = words.get("answer").unwrap_or("s50-10");
    let answer = Script::parse(word).ok_or(format!("--answer {word}: not a script"))?;
    Ok(MockOptions { at: SocketAddr::new(ip, words.number("port")?.unwrap_or(0)), answer })
}

const LOAD_OPTIONS: [&str; 23] = [
    "url",
    "model",
    "format",
    "connections",
    "requests",
    "duration",
    "rate",
    "arrivals",
    "seed",
    "think-ms",
    "gap-ms",
    "spread-ms",
    "warmup",
    "timeout",
    "limit",
    "body-bytes",
    "messages",
    "tools",
    "key",
    "header",
    "answer",
    "events",
    "json",
];

pub fn load(args: &[String]) -> Result<LoadOptions, String> {
    let words = Words::read(args, &LOAD_OPTIONS)?;
    let model = words.get("model").ok_or("--model is needed")?;
    let url = words.get("url").ok_or("--url is needed")?.replace("{model}", model);
    let rest =
        url.strip_prefix("http://").ok_or("--url http://...: there is no TLS here; load what stands behind it")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let with_port =
        if host.rsplit(']').next().unwrap_or(host).contains(':') { host.to_string() } else { format!("{host}:80") };
    let address = with_port
        .to_socket_addrs()
        .map_err(|e| format!("{host}: {e}"))?
        .next()
        .ok_or(format!("{host}: no such host"))?;

    let format = match words.get("format").unwrap_or("chat") {
        "chat" => Format::Chat,
        "messages" => Format::Messages,
        "responses" => Format::Responses,
        "gemini" => Format::Gemini,
        other => return Err(format!("--format {other}: not one of chat, messages, responses, gemini")),
    };
    let expected = expected(&words, format, model, path)?;
    let connections = words.up_to("connections", MOST_CONNECTIONS)?.unwrap_or(32) as usize;
    let (requests, duration_us) = (words.number("requests")?, words.seconds_us("duration")?);
    if requests.is_none() && duration_us.is_none() {
        return Err("--requests or --duration is needed".into());
    }
    if requests == Some(0) || duration_us == Some(0) {
        return Err("--requests and --duration begin above 0".into());
    }
    let rate: Option<f64> = words.number("rate")?;
    if connections == 0 || rate.map_or(false, |rate| rate.is_nan() || rate <= 0.0) {
        return Err("--connections and --rate begin above 0".into());
    }
    let chance = match words.get("arrivals").unwrap_or("even") {
        "even" => None,
        "poisson" => Some(words.number("seed")?.unwrap_or(1)),
        other => return Err(format!("--arrivals {other}: not even or poisson")),
    };
    let think_ms = words.up_to("think-ms", A_DAY_MS)?.or(words.up_to("gap-ms", A_DAY_MS)?).unwrap_or(0);
    let spread_ms = words.up_to("spread-ms", A_DAY_MS)?.unwrap_or(0);
    if rate.is_some() && think_ms + spread_ms > 0 {
        return Err("--think-ms and --spread-ms are of the closed loop; with --rate the schedule decides".into());
    }
    let shape = Shape {
        format,
        streams: expected.script.streams,
        bytes: words.up_to("body-bytes", MOST_BYTES)?.unwrap_or(1024) as usize,
        messages: words.up_to("messages", MOST_PARTS)?.unwrap_or(0) as usize,
        tools: words.up_to("tools", MOST_PARTS)?.unwrap_or(0) as usize,
    };
    Ok(LoadOptions {
        plan: Plan {
            address,
            expected,
            request: Request::new(&shape, model, &head(&words, format, host, path)?),
            connections,
            requests: requests.unwrap_or(u64::MAX),
            duration_us: duration_us.unwrap_or(u64::MAX),
            rate,
            chance,
            think_us: think_ms * 1000,
            spread_us: spread_ms * 1000,
            patience_us: words.seconds_us("timeout")?.unwrap_or(60_000_000),
            limit_us: words.seconds_us("limit")?.unwrap_or(u64::MAX),
            warmup_us: words.seconds_us("warmup")?.unwrap_or(0),
        },
        json: words.has("json"),
    })
}

/// What the answers will be: said, or read from where the mock reads it.
fn expected(words: &Words, format: Format, model: &str, path: &str) -> Result<Expected, String> {
    let (mut script, exact) = match words.get("answer") {
        Some("any") => (Script::default(), false),
        Some("any-stream") => (Script { streams: true, ..Script::default() }, false),
        Some(word) => (Script::parse(word).ok_or(format!("--answer {word}: not a script"))?, true),
        None => {
            let segment = path[1..].split('/').next().unwrap_or_default();
            let name = model.rsplit('/').next().unwrap_or_default();
            (Script::parse(segment).or_else(|| Script::parse(name)).unwrap_or_default(), true)
        }
    };
    if let Some(events) = words.number("events")? {
        script.text = events;
        script.streams = events > 0;
    }
    Ok(Expected { format, script, exact })
}

/// The request's head, but for what describes the body.
fn head(words: &Words, format: Format, host: &str, path: &str) -> Result<String, String> {
    let key = words.get("key").unwrap_or("bench-key");
    if key.contains(|letter: char| letter.is_control()) {
        return Err(format!("--key {key:?}: no header can carry it"));
    }
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: arbiter-loadgen\r\naccept: */*\r\n");
    head.push_str(&match format {
        Format::Chat | Format::Responses => format!("authorization: Bearer {key}\r\n"),
        Format::Messages => format!("x-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n"),
        Format::Gemini => format!("x-goog-api-key: {key}\r\n"),
    });
    for (_, header) in words.all.iter().filter(|(name, _)| name == "header") {
        let header = header.as_deref().unwrap_or_default();
        if !header.contains(": ") || header.contains(|letter: char| letter.is_control()) {
            return Err(format!("--header {header:?}: not 'NAME: VALUE'"));
        }
        head.push_str(header);
        head.push_str("\r\n");
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &str) -> Result<LoadOptions, String> {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        load(&args)
    }

    const BASE: &str = "--url http://127.0.0.1:9/v1/x --requests 1";

    #[test]
    fn what_is_expected_comes_from_where_the_mock_reads_it() {
        let text = |line: &str| {
            given(line)
                .map(|o| (o.plan.expected.script.streams, o.plan.expected.script.text, o.plan.expected.exact))
                .unwrap()
        };
        assert_eq!(text(&format!("{BASE} --model m")), (false, 0, true));
        assert_eq!(text(&format!("{BASE} --model a/s5-0")), (true, 5, true));
        assert_eq!(text(&format!("{BASE} --model m --events 7")), (true, 7, true));
        assert_eq!(text(&format!("{BASE} --model m --answer s6-0.r1")), (true, 6, true));
        assert_eq!(text(&format!("{BASE} --model m --answer any-stream")), (true, 0, false));
        assert_eq!(text("--url http://127.0.0.1:9/s9-1/v1 --model u5 --requests 1"), (true, 9, true));
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for line in ["", "--model m", "--model m --url https://x/ --requests 1", "--model m --url http://127.0.0.1:9/"]
        {
            assert!(given(line).is_err(), "{line}");
        }
        for more in [
            "--rate 0",
            "--rate x",
            "--rate 5 --think-ms 3",
            "--connections 0",
            "--format x",
            "--header x",
            "--answer x",
            "--nothing 1",
            "--arrivals x",
            "--timeout -1",
            "--requests 0",
            "--duration 0",
            "--connections 65536",
            "--think-ms 18446744073709551615",
            "--spread-ms 86400001",
            "--body-bytes 1073741825",
            "--messages 1000001",
            "--tools 18446744073709551615",
            "--key a\u{1}b",
            "x",
        ] {
            assert!(given(&format!("{BASE} --model m {more}")).is_err(), "{more}");
        }
        assert!(given(&format!("{BASE} --model m --rate=5 --arrivals=poisson --json")).map(|o| o.json).unwrap());
    }

    #[test]
    fn help_names_every_option() {
        for name in LOAD_OPTIONS.iter().chain(&MOCK_OPTIONS) {
            assert!(HELP.contains(&format!("--{name}")), "{name}");
        }
    }
}
