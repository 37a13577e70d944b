//! What a run found: counts, errors by kind, times as HDR histograms; as JSON and as a table.

use crate::fault::{Fault, Kind};
use crate::json::quoted;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Times up to an hour, to three digits.
const LONGEST_US: u64 = 3_600_000_000;

pub struct Times(Histogram<u64>);

impl Times {
    fn new() -> Self {
        Times(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("bounds that hdrhistogram takes"))
    }

    pub fn note(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    fn at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    fn json(&self) -> String {
        format!(
            "{{\"count\": {}, \"mean\": {:.1}, \"p50\": {}, \"p90\": {}, \"p99\": {}, \"p99.9\": {}, \"max\": {}}}",
            self.0.len(),
            self.0.mean(),
            self.at(0.5),
            self.at(0.9),
            self.at(0.99),
            self.at(0.999),
            self.0.max()
        )
    }

    fn row(&self) -> String {
        let ms = |us: u64| format!("{:>10.3}", us as f64 / 1000.0);
        let all = [self.at(0.5), self.at(0.9), self.at(0.99), self.at(0.999), self.0.max()];
        all.iter().map(|us| ms(*us)).collect()
    }
}

pub struct Report {
    /// Requests that ended, well or not.
    pub requests: u64,
    pub events: u64,
    /// Events and comments that only say that somebody is there.
    pub pings: u64,
    pub bytes: u64,
    pub connects: u64,
    pub seconds: f64,
    pub cpu_us: u64,
    /// Per second; of the open loop only.
    pub rate: Option<f64>,
    /// The most that waited for a connection at once.
    pub waiting_max: usize,
    /// To the first event, to the first one with text, and to the end: of good answers, from the intended start.
    pub first: Times,
    pub ttft: Times,
    pub total: Times,
    /// Between two events of a stream.
    pub gap: Times,
    /// How much later than intended requests were sent.
    pub late: Times,
    errors: BTreeMap<Kind, u64>,
    complaint: String,
}

impl Report {
    pub fn new(rate: Option<f64>) -> Self {
        Report {
            requests: 0,
            events: 0,
            pings: 0,
            bytes: 0,
            connects: 0,
            seconds: 0.0,
            cpu_us: 0,
            rate,
            waiting_max: 0,
            first: Times::new(),
            ttft: Times::new(),
            total: Times::new(),
            gap: Times::new(),
            late: Times::new(),
            errors: BTreeMap::new(),
            complaint: String::new(),
        }
    }

    pub fn complain(&mut self, fault: Fault) {
        *self.errors.entry(fault.kind).or_insert(0) += 1;
        if self.complaint.is_empty() {
            self.complaint = format!("{}: {}", fault.kind, fault.detail);
        }
    }

    pub fn errors(&self) -> u64 {
        self.errors.values().sum()
    }

    fn per_second(&self, n: u64) -> f64 {
        n as f64 / self.seconds.max(1e-9)
    }

    pub fn json(&self) -> String {
        let by_kind: Vec<String> = self.errors.iter().map(|(kind, count)| format!("\"{kind}\": {count}")).collect();
        let mut text = format!(
            "{{\"requests\": {}, \"events\": {}, \"pings\": {}, \"bytes\": {}, \"connects\": {}, \"seconds\": {:.4}, ",
            self.requests, self.events, self.pings, self.bytes, self.connects, self.seconds
        );
        let _ = write!(
            text,
            "\"requests_per_s\": {:.1}, \"events_per_s\": {:.1}, \"client_cpu_us\": {}, \"errors\": {}, \"errors_by_kind\": {{{}}}, \"complaint\": {}, ",
            self.per_second(self.requests - self.errors()),
            self.per_second(self.events),
            self.cpu_us,
            self.errors(),
            by_kind.join(", "),
            quoted(&self.complaint)
        );
        let rate = self.rate.map_or("null".into(), |rate| rate.to_string());
        let _ = write!(
            text,
            "\"rate\": {rate}, \"waiting_max\": {}, \"first_us\": {}, \"ttft_us\": {}, \"total_us\": {}, \"gap_us\": {}, \"late_us\": {}}}",
            self.waiting_max,
            self.first.json(),
            self.ttft.json(),
            self.total.json(),
            self.gap.json(),
            self.late.json()
        );
        text
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "{} requests in {:.1} s ({:.1}/s), {} errors, {} connections opened\n",
            self.requests,
            self.seconds,
            self.per_second(self.requests),
            self.errors(),
            self.connects
        );
        if self.events > 0 {
            let _ = writeln!(
                text,
                "{} events ({:.0}/s), {} pings, {} bytes",
                self.events,
                self.per_second(self.events),
                self.pings,
                self.bytes
            );
        }
        if let Some(rate) = self.rate {
            let _ =
                writeln!(text, "open loop: {rate}/s asked for; at most {} waited for a connection", self.waiting_max);
        }
        let busy = self.cpu_us as f64 / 1e4 / self.seconds.max(1e-9);
        let _ = writeln!(text, "this client used {busy:.0} % of a core\n");
        let _ = writeln!(text, "{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}", "ms", "p50", "p90", "p99", "p99.9", "max");
        let first = if self.events > 0 { "first event" } else { "first byte" };
        let named = [
            (first, &self.first),
            ("first text", &self.ttft),
            ("total", &self.total),
            ("between events", &self.gap),
            ("sent late", &self.late),
        ];
        for (name, times) in named {
            if !times.0.is_empty() {
                let _ = writeln!(text, "{name:<14}{}", times.row());
            }
        }
        if self.errors() > 0 {
            text.push('\n');
            for (kind, count) in &self.errors {
                let _ = writeln!(text, "{kind:<14}{count:>10}");
            }
            let _ = writeln!(text, "first: {}", self.complaint);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scan;

    #[test]
    fn the_report_is_json_and_says_what_went_wrong_first() {
        let mut report = Report::new(Some(2.5));
        report.complain(Fault::say(Kind::Status(429), "a \"quoted\" one"));
        report.complain(Fault::say(Kind::Cut, "another"));
        report.total.note(1500);
        report.requests = 3;
        let json = report.json();
        let mut scan = Scan::new(json.as_bytes());
        assert!(scan.skip().and_then(|()| scan.end()).is_ok(), "{json}");
        assert!(json.contains("\"errors_by_kind\": {\"status_429\": 1, \"cut\": 1}"), "{json}");
        assert!(json.contains("\"complaint\": \"status_429: a \\\"quoted\\\" one\""), "{json}");
        assert!(json.contains("\"p99.9\": 1500") && json.contains("\"first_us\": {\"count\": 0, "), "{json}");
        assert!(report.table().contains("first: status_429"));
    }

    #[test]
    fn quantiles_hold_to_three_digits() {
        let mut times = Times::new();
        for us in 1..=100_000 {
            times.note(us);
        }
        for (quantile, wanted) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let off = (times.at(quantile) as f64 - wanted).abs() / wanted;
            assert!(off < 0.001, "{quantile}: {}", times.at(quantile));
        }
    }
}
