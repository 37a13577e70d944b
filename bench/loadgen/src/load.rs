//! The client: one thread, epoll, as many connections as it is told.
//!
//! Closed loop: each connection asks, reads the answer, thinks, asks again. Open loop: requests are due on a schedule,
//! whatever became of those before them; one that finds no connection free waits, and its time counts from the moment at
//! which it was due (so a gateway that stands still is seen by everybody who came meanwhile: no coordinated omission).

use crate::arrivals::Arrivals;
use crate::body::Request;
use crate::fault::{Fault, Kind};
use crate::formats::Seen;
use crate::pieces::Mark;
use crate::reader::{Expected, Got, Reader};
use crate::report::Report;
use crate::sys::{self, now_us, Poller, Wait};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

const READ_BYTES: usize = 256 << 10;
/// How often somebody looks for requests that nothing comes for.
const SWEEP_US: u64 = 500_000;
/// After a connection was refused.
const BACK_OFF_US: u64 = 10_000;

pub struct Plan {
    pub address: SocketAddr,
    pub expected: Expected,
    pub request: Request,
    pub connections: usize,
    /// At most so many requests, and none that begins after this time.
    pub requests: u64,
    pub duration_us: u64,
    /// Requests per second; without it the loop is closed.
    pub rate: Option<f64>,
    /// A seed, where arrivals are as far apart as chance has it and not evenly.
    pub chance: Option<u64>,
    pub think_us: u64,
    pub spread_us: u64,
    pub patience_us: u64,
    /// Whatever is not over then never will be.
    pub limit_us: u64,
    /// Requests due before this are made and checked, not timed.
    pub warmup_us: u64,
}

struct Conn {
    socket: Option<TcpStream>,
    generation: u32,
    connecting: bool,
    /// The socket is watched for room to write.
    blocked: bool,
    busy: bool,
    sent: usize,
    mark: Mark,
    reader: Reader,
    intended_us: u64,
    sent_us: u64,
    times: EventTimes,
    heard_us: u64,
}

#[derive(Clone, Copy, Default)]
struct EventTimes {
    first_us: u64,
    ttft_us: u64,
    last_us: u64,
}

pub struct Load {
    plan: Plan,
    poller: Poller,
    conns: Vec<Conn>,
    /// Connections with nothing to do.
    idle: Vec<usize>,
    /// Connections of the closed loop that begin again later.
    later: BinaryHeap<Reverse<(u64, usize)>>,
    /// Intended starts of the open loop's requests that no connection has taken yet.
    waiting: VecDeque<u64>,
    arrivals: Option<Arrivals>,
    /// Requests of the closed loop that have not begun.
    left: u64,
    running: usize,
    began_us: u64,
    ends_us: u64,
    next_mark: u32,
    report: Report,
    /// What this process had used, and waited for a core, before the run.
    cpu_us: u64,
    core_wait_us: Option<u64>,
}

impl Load {
    pub fn new(plan: Plan) -> io::Result<Self> {
        let began_us = now_us();
        let conns: Vec<Conn> = (0..plan.connections).map(|_| Conn::new(plan.expected)).collect();
        let ends_us = began_us.saturating_add(plan.duration_us.min(plan.limit_us));
        let arrivals = plan.rate.map(|rate| Arrivals::new(began_us, ends_us, plan.requests, rate, plan.chance));
        let mut later = BinaryHeap::new();
        let mut idle = Vec::new();
        if arrivals.is_some() {
            // The first ones first: few connections then do for a low rate.
            idle.extend((0..plan.connections).rev());
        } else {
            later.extend(
                (0..plan.connections)
                    .map(|i| Reverse((began_us + plan.spread_us * i as u64 / plan.connections as u64, i))),
            );
        }
        Ok(Load {
            poller: Poller::new()?,
            conns,
            idle,
            later,
            waiting: VecDeque::new(),
            arrivals,
            left: plan.requests,
            running: 0,
            began_us,
            ends_us,
            // Two runs that follow each other do not share marks.
            next_mark: std::process::id() % 1000 * 100_000,
            report: Report::new(plan.rate, plan.warmup_us),
            plan,
            cpu_us: sys::cpu_us(),
            core_wait_us: sys::core_wait_us(),
        })
    }

    pub fn run(mut self) -> Report {
        let mut room = vec![0; READ_BYTES];
        let mut swept_us = self.began_us;
        loop {
            let now = now_us();
            if now >= swept_us + SWEEP_US {
                self.sweep(now);
                swept_us = now;
            }
            self.dispatch(now);
            if self.over(now) {
                break;
            }
            for i in 0..self.poller.wait(self.pause(swept_us + SWEEP_US), now) {
                let ready = match self.poller.ready(i) {
                    Some(ready) => ready,
                    None => continue,
                };
                let slot = ready.token as u32 as usize;
                if self.conns[slot].generation != (ready.token >> 32) as u32 {
                    continue;
                }
                if ready.output {
                    self.push(slot);
                }
                if ready.input {
                    self.read(slot, &mut room);
                }
            }
        }
        self.report.seconds = (now_us() - self.began_us) as f64 / 1e6;
        self.report.cpu_us = sys::cpu_us() - self.cpu_us;
        self.report.core_wait_us =
            sys::core_wait_us().zip(self.core_wait_us).map(|(now, before)| now.saturating_sub(before));
        self.report
    }

    fn pause(&self, sweep_us: u64) -> Wait {
        let later = self.later.peek().map(|Reverse((due_us, _))| *due_us);
        let arrival = self.arrivals.as_ref().and_then(Arrivals::due_us);
        match later.into_iter().chain(arrival).min() {
            Some(due_us) if due_us < sweep_us => Wait::Until(due_us),
            _ => Wait::About(sweep_us),
        }
    }

    fn over(&self, now: u64) -> bool {
        let no_more = match &self.arrivals {
            Some(arrivals) => arrivals.due_us().is_none() && self.waiting.is_empty(),
            None => self.left == 0 || now >= self.ends_us,
        };
        no_more && self.running == 0
    }

    /// Begin what is due.
    fn dispatch(&mut self, now: u64) {
        while let Some(Reverse((due_us, slot))) = self.later.peek().copied() {
            if due_us > now {
                break;
            }
            self.later.pop();
            self.idle.push(slot);
        }
        if let Some(arrivals) = &mut self.arrivals {
            self.waiting.extend(std::iter::from_fn(|| arrivals.take(now)));
            while let (Some(slot), Some(intended_us)) = (self.idle.last().copied(), self.waiting.front().copied()) {
                self.idle.pop();
                self.waiting.pop_front();
                self.begin(slot, intended_us);
            }
            self.report.waiting_max = self.report.waiting_max.max(self.waiting.len());
            return;
        }
        while let Some(slot) = self.idle.pop() {
            if self.left > 0 && now < self.ends_us {
                self.left -= 1;
                self.begin(slot, now);
            }
        }
    }

    fn begin(&mut self, slot: usize, intended_us: u64) {
        let mark = self.next_mark % 100_000_000;
        self.next_mark += 1;
        self.running += 1;
        let conn = &mut self.conns[slot];
        conn.mark.copy_from_slice(format!("{mark:08}").as_bytes());
        conn.reader.begin(conn.mark);
        conn.busy = true;
        conn.sent = 0;
        conn.intended_us = intended_us;
        conn.times = EventTimes::default();
        conn.sent_us = now_us();
        conn.heard_us = conn.sent_us;
        if conn.socket.is_none() {
            self.report.connects += 1;
            let opened = sys::connect(&self.plan.address);
            let token = u64::from(conn.generation) << 32 | slot as u64;
            let watched = opened.and_then(|socket| self.poller.add(&socket, token, true).map(|()| socket));
            match watched {
                Ok(socket) => {
                    conn.socket = Some(socket);
                    conn.connecting = true;
                    conn.blocked = true;
                }
                Err(e) => return self.end(slot, Err(Fault::say(Kind::Refused, e.to_string()))),
            }
            return;
        }
        self.push(slot);
    }

    /// Send as much of the request as goes.
    fn push(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        let socket = match &mut conn.socket {
            Some(socket) => socket,
            None => return,
        };
        if conn.connecting {
            if let Some(e) = socket.take_error().unwrap_or_else(Some) {
                return self.end(slot, Err(Fault::say(Kind::Refused, e.to_string())));
            }
            conn.connecting = false;
        }
        let mut full = false;
        while conn.busy && conn.sent < self.plan.request.len() {
            let parts = self.plan.request.rest(&conn.mark, conn.sent);
            match socket.write_vectored(&parts.map(IoSlice::new)) {
                Ok(n) => conn.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    full = true;
                    break;
                }
                // An answer may be there all the same; reading tells.
                Err(_) => break,
            }
        }
        if full != conn.blocked {
            let token = u64::from(conn.generation) << 32 | slot as u64;
            let _ = self.poller.change(&*socket, token, full);
            conn.blocked = full;
        }
    }

    fn read(&mut self, slot: usize, room: &mut [u8]) {
        while let Some(socket) = &mut self.conns[slot].socket {
            let n = match socket.read(room) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if self.conns[slot].connecting => {
                    return self.end(slot, Err(Fault::say(Kind::Refused, e.to_string())));
                }
                Err(_) => 0,
            };
            let conn = &mut self.conns[slot];
            if !conn.busy {
                if n > 0 {
                    self.report.complain(Fault::new(Kind::Trailing, "bytes behind the end", &room[..n]));
                }
                return conn.close();
            }
            if n == 0 {
                let ended = conn.reader.closed();
                return self.end(slot, ended);
            }
            let now = now_us();
            conn.heard_us = now;
            let (times, report) = (&mut conn.times, &mut self.report);
            let timed = conn.intended_us >= self.began_us + self.plan.warmup_us;
            let got = conn.reader.feed(&room[..n], |seen| times.note(seen, now, timed, report));
            match got {
                Ok(Got::More) => {}
                other => return self.end(slot, other),
            }
            // Epoll tells again where there is more.
            if n < room.len() {
                return;
            }
        }
    }

    /// A request is over, well or not.
    fn end(&mut self, slot: usize, how: Result<Got, Fault>) {
        let now = now_us();
        let conn = &mut self.conns[slot];
        let report = &mut self.report;
        conn.busy = false;
        self.running -= 1;
        report.requests += 1;
        report.bytes += conn.reader.bytes;
        report.pings += conn.reader.comments();
        let mut due_us = now + self.plan.think_us;
        match how {
            Ok(got) => {
                if got != (Got::Whole { keep: true }) {
                    conn.close();
                }
                if conn.intended_us >= self.began_us + self.plan.warmup_us {
                    let since = |us: u64| us.saturating_sub(conn.intended_us);
                    report.total.note(since(now));
                    report.first.note(since(conn.times.first_us));
                    if conn.times.ttft_us > 0 {
                        report.ttft.note(since(conn.times.ttft_us));
                    }
                    if self.plan.rate.is_some() {
                        report.late.note(since(conn.sent_us));
                    }
                }
            }
            Err(fault) => {
                conn.close();
                if fault.kind == Kind::Refused {
                    due_us = due_us.max(now + BACK_OFF_US);
                }
                report.complain(fault);
            }
        }
        if self.plan.rate.is_none() && due_us > now {
            self.later.push(Reverse((due_us, slot)));
        } else {
            self.idle.push(slot);
        }
    }

    /// Give up on what nothing came for, on what still waits long after the end, and on everything at the limit.
    fn sweep(&mut self, now: u64) {
        let patience = self.plan.patience_us;
        let at_limit = now - self.began_us >= self.plan.limit_us;
        for slot in 0..self.conns.len() {
            let conn = &self.conns[slot];
            if conn.busy && now - conn.heard_us > patience {
                let fault = Fault::say(Kind::Stalled, format!("nothing came for {} s", patience / 1_000_000));
                self.end(slot, Err(fault));
            } else if conn.busy && at_limit {
                self.end(slot, Err(Fault::say(Kind::Stalled, "not over at the limit")));
            }
        }
        if at_limit || now > self.ends_us.saturating_add(patience) {
            for _ in self.waiting.drain(..) {
                self.report.requests += 1;
                self.report.complain(Fault::say(Kind::Stalled, "no connection became free for it"));
            }
        }
    }
}

impl Conn {
    fn new(expected: Expected) -> Self {
        Conn {
            socket: None,
            generation: 0,
            connecting: false,
            blocked: false,
            busy: false,
            sent: 0,
            mark: [b'0'; 8],
            reader: Reader::new(expected),
            intended_us: 0,
            sent_us: 0,
            times: EventTimes::default(),
            heard_us: 0,
        }
    }

    fn close(&mut self) {
        self.socket = None;
        self.generation = self.generation.wrapping_add(1) & 0x7FFF_FFFF;
        self.connecting = false;
        self.blocked = false;
    }
}

impl EventTimes {
    fn note(&mut self, seen: Seen, now: u64, timed: bool, report: &mut Report) {
        if seen == Seen::Ping {
            report.pings += 1;
            return;
        }
        report.events += u64::from(seen != Seen::Bytes);
        if self.first_us == 0 {
            self.first_us = now;
        } else if timed && seen != Seen::Bytes {
            report.gap.note(now - self.last_us);
        }
        if seen == Seen::Delta && self.ttft_us == 0 {
            self.ttft_us = now;
        }
        self.last_us = now;
    }
}
