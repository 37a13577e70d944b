//! What a run found: counts, errors by kind, times as HDR histograms; as JSON and as a table.

use crate::fault::{Fault, Kind};
use crate::json::quoted;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Times up to an hour, to three digits.
const LONGEST_US: u64 = 3_600_000_000;
/// Of a shorter run, what the client used of its core is chance.
const LEAST_SECONDS: f64 = 0.1;

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
    /// What this process used during the run, and how long it was ready to run and had no core, where the kernel counts it.
    pub cpu_us: u64,
    pub core_wait_us: Option<u64>,
    /// Requests due before this are counted, and are not in the times.
    warmup_us: u64,
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
    pub fn new(rate: Option<f64>, warmup_us: u64) -> Self {
        Report {
            requests: 0,
            events: 0,
            pings: 0,
            bytes: 0,
            connects: 0,
            seconds: 0.0,
            cpu_us: 0,
            core_wait_us: None,
            warmup_us,
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

    /// Requests whose answers were right.
    fn good(&self) -> u64 {
        self.requests.saturating_sub(self.errors())
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
            "\"requests_per_s\": {:.1}, \"events_per_s\": {:.1}, \"client_cpu_us\": {}, \"client_wait_us\": {}, \"warmup_s\": {}, \"errors\": {}, \"errors_by_kind\": {{{}}}, \"complaint\": {}, ",
            self.per_second(self.good()),
            self.per_second(self.events),
            self.cpu_us,
            self.core_wait_us.map_or("null".into(), |us| us.to_string()),
            self.warmup_us as f64 / 1e6,
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
        let rate = match (self.good(), self.errors()) {
            (0, _) => String::new(),
            (good, 0) => format!(" ({:.1}/s)", self.per_second(good)),
            (good, _) => format!(" ({:.1} good ones/s)", self.per_second(good)),
        };
        let mut text = format!(
            "{} requests in {:.1} s{rate}, {} errors, {} connections opened\n",
            self.requests,
            self.seconds,
            self.errors(),
            self.connects
        );
        if self.warmup_us > 0 {
            let warmup = self.warmup_us as f64 / 1e6;
            let _ =
                writeln!(text, "those of the first {warmup} s (--warmup) are counted here, and are not in the times");
        }
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
        if self.seconds >= LEAST_SECONDS {
            let share = |us: u64| us as f64 / 1e4 / self.seconds;
            let _ = write!(text, "this client used {:.0} % of a core", share(self.cpu_us));
            let _ = match self.core_wait_us {
                Some(us) => writeln!(text, " and waited {:.0} % of the time for one", share(us)),
                None => writeln!(text),
            };
        }
        let first = if self.events > 0 { "first event" } else { "first byte" };
        let named = [
            (first, &self.first),
            ("first text", &self.ttft),
            ("total", &self.total),
            ("between events", &self.gap),
            ("sent late", &self.late),
        ];
        let rows: Vec<String> = named
            .iter()
            .filter(|(_, times)| !times.0.is_empty())
            .map(|(name, times)| format!("{name:<14}{}\n", times.row()))
            .collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}", "ms", "p50", "p90", "p99", "p99.9", "max");
            text.push_str(&rows.concat());
        } else if self.good() > 0 && self.warmup_us > 0 {
            text.push_str("no times: every good answer was asked for during the warm-up\n");
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
        let mut report = Report::new(Some(2.5), 0);
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

    fn of(requests: u64, errors: u64, seconds: f64, warmup_us: u64) -> Report {
        let mut report = Report::new(None, warmup_us);
        report.requests = requests;
        report.seconds = seconds;
        for _ in 0..errors {
            report.complain(Fault::say(Kind::Cut, "cut"));
        }
        report
    }

    #[test]
    fn a_failed_request_is_in_no_rate() {
        assert!(of(100, 0, 10.0, 0).table().starts_with("100 requests in 10.0 s (10.0/s), 0 errors"));
        assert!(of(100, 20, 10.0, 0).table().starts_with("100 requests in 10.0 s (8.0 good ones/s), 20 errors"));
        assert!(of(100, 100, 10.0, 0).table().starts_with("100 requests in 10.0 s, 100 errors"));
        // One answer may be wrong twice, by bytes behind its end.
        let json = of(1, 2, 10.0, 0).json();
        assert!(json.contains("\"requests_per_s\": 0.0"), "{json}");
    }

    #[test]
    fn what_the_client_used_is_told_of_a_run_that_is_long_enough() {
        let mut report = of(1, 0, 2.0, 0);
        report.cpu_us = 500_000;
        assert!(report.table().contains("this client used 25 % of a core\n"), "{}", report.table());
        assert!(report.json().contains("\"client_wait_us\": null"), "{}", report.json());
        report.core_wait_us = Some(1_500_000);
        assert!(
            report.table().contains("used 25 % of a core and waited 75 % of the time for one\n"),
            "{}",
            report.table()
        );
        assert!(report.json().contains("\"client_wait_us\": 1500000"), "{}", report.json());
        report.seconds = 0.01;
        assert!(!report.table().contains("of a core"), "{}", report.table());
    }

    #[test]
    fn a_table_has_a_row_or_is_not_there() {
        let mut report = of(3, 0, 1.0, 2_000_000);
        let text = report.table();
        assert!(!text.contains("p99") && text.contains("every good answer was asked for during the warm-up"), "{text}");
        report.total.note(1500);
        assert!(report.table().contains("p99") && !report.table().contains("no times"));
        assert!(!of(3, 3, 1.0, 0).table().contains("p99"));
    }

    #[test]
    fn a_count_says_whether_the_warm_up_is_in_it() {
        let report = of(3, 0, 5.0, 1_500_000);
        assert!(report.table().contains("the first 1.5 s (--warmup) are counted here"), "{}", report.table());
        assert!(report.json().contains("\"warmup_s\": 1.5"), "{}", report.json());
        assert!(!of(3, 0, 5.0, 0).table().contains("warm"));
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

    #[test]
    fn the_quantiles_of_a_known_distribution_are_its_own() {
        // Of an exponential one, as waiting is: most are short, and the long ones very long.
        let (mut times, count, mean_us) = (Times::new(), 200_000, 10_000.0);
        let quantile_us = |q: f64| -(1.0 - q).ln() * mean_us;
        for i in 0..count {
            // In no order.
            let rank = (i * 7_919) % count;
            times.note(quantile_us((rank as f64 + 0.5) / count as f64).round() as u64);
        }
        for q in [0.5, 0.9, 0.99, 0.999] {
            let (found, wanted) = (times.at(q) as f64, quantile_us(q));
            assert!((found - wanted).abs() / wanted < 0.0015, "{q}: {found}, not {wanted}");
        }
        assert!((times.0.mean() - mean_us).abs() / mean_us < 0.001, "{}", times.0.mean());
        let longest_us = quantile_us((count as f64 - 0.5) / count as f64);
        assert!((times.0.max() as f64 - longest_us).abs() / longest_us < 0.001, "{}", times.0.max());
        times.note(u64::MAX);
        assert!(times.0.max() >= LONGEST_US && times.0.len() == count + 1);
    }
}
