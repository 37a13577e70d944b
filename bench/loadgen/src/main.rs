//! Load an LLM gateway and check every event that it hands on; be the upstream behind it.

mod arrivals;
mod ask;
mod body;
mod fault;
mod formats;
mod http;
mod json;
mod load;
mod mock;
mod options;
mod pieces;
mod play;
mod reader;
mod report;
mod script;
mod sse;
mod sys;

use std::io::{self, Write};
use std::process::ExitCode;

/// What stands at the head of script.rs, which is where the grammar is kept.
const SCRIPTS: &str = include_str!("script.rs");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("", &[][..]),
    };
    let wants_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    let done = match verb {
        "load" if !wants_help => load(rest),
        "mock" if !wants_help => mock(rest),
        "scripts" => {
            let lines = SCRIPTS.lines().take_while(|line| line.starts_with("//!"));
            lines.for_each(|line| println!("{}", line[3..].strip_prefix(' ').unwrap_or("")));
            Ok(true)
        }
        "-V" | "--version" => {
            println!("arbiter-loadgen {}", env!("CARGO_PKG_VERSION"));
            Ok(true)
        }
        "load" | "mock" | "help" | "-h" | "--help" => {
            print!("{}", options::HELP);
            Ok(true)
        }
        _ => Err(format!("{verb:?} is none of load, mock, scripts, help")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("arbiter-loadgen: {why} (arbiter-loadgen help)");
            ExitCode::from(2)
        }
    }
}

/// Whether every answer was right.
fn load(args: &[String]) -> Result<bool, String> {
    let options = options::load(args)?;
    sys::raise_file_limit();
    let report = load::Load::new(options.plan).map_err(|e| e.to_string())?.run();
    let text = if options.json { report.json() + "\n" } else { report.table() };
    io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())?;
    Ok(report.errors() == 0)
}

fn mock(args: &[String]) -> Result<bool, String> {
    let options = options::mock(args)?;
    sys::raise_file_limit();
    let mut mock = mock::Mock::new(options.at, options.answer).map_err(|e| format!("{}: {e}", options.at))?;
    let port = mock.port().map_err(|e| e.to_string())?;
    println!("{{\"port\": {port}}}");
    io::stdout().flush().map_err(|e| e.to_string())?;
    mock.run()
}
