//! The mock upstream: one thread, epoll, keep-alive. What to answer stands in a script (script.rs) that the path's first
//! segment or the model's name carries; where neither does, `--answer` says it for streams, and 1 KB of JSON is the rest.
//!
//! A request may carry `mark=NNNNNNNN`; its answer repeats it in every text, so that the client can tell whether each
//! stream arrived whole, in order and unmixed.

use crate::ask::{count_of_tokens, format_of, mark, model, wants_stream, EMBEDDING};
use crate::formats::{put, Answer, Format};
use crate::http::{self, Body, Framing, Piece};
use crate::play::{another, End, Running};
use crate::script::{Script, Wrong};
use crate::sys::{self, find_byte, now_us, Poller, Wait};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const LISTENER: u64 = u64::MAX - 1;
const ROOM: usize = 64 << 10;
/// A buffer that once held a long request is given back.
const KEPT_ROOM: usize = 256 << 10;

enum Doing {
    Nothing,
    /// The answer is to begin later.
    Later(Answer),
    Stream(Running),
    /// It will say no more, and listens to nothing.
    Stalled,
}

struct Conn {
    socket: TcpStream,
    input: Vec<u8>,
    /// Head and body of the request at the start of `input`; 0 while its head is not whole.
    need: usize,
    head: usize,
    /// A body in chunks: its state, how much of `input` it has taken, and what it said.
    chunks: Option<(Body, usize, Vec<u8>)>,
    /// What the socket did not take yet.
    out: Vec<u8>,
    out_at: usize,
    doing: Doing,
    /// To be closed once everything is sent.
    last: bool,
    /// Its client asked for no more than this answer on it.
    closes: bool,
}

/// Which connection a timer or an event of epoll means; slots are used again.
type Token = u64;

pub struct Mock {
    poller: Poller,
    listener: TcpListener,
    conns: Vec<Option<Conn>>,
    generations: Vec<u32>,
    free: Vec<usize>,
    timers: BinaryHeap<Reverse<(u64, Token)>>,
    /// Streams without a gap: each has a turn whenever the others had theirs.
    eager: Vec<Token>,
    default: Script,
    serial: u32,
    chunk: Vec<u8>,
    event: Vec<u8>,
}

impl Mock {
    pub fn new(at: SocketAddr, default: Script) -> io::Result<Self> {
        let (poller, listener) = (Poller::new()?, sys::listen(at)?);
        poller.add(&listener, LISTENER, false)?;
        Ok(Mock {
            poller,
            listener,
            conns: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            eager: Vec::new(),
            default,
            serial: 0,
            chunk: Vec::new(),
            event: Vec::new(),
        })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serve until the process ends.
    pub fn run(&mut self) -> ! {
        loop {
            let wait = match self.timers.peek() {
                _ if !self.eager.is_empty() => Wait::Not,
                Some(Reverse((due_us, _))) => Wait::About(*due_us),
                None => Wait::Forever,
            };
            let now = if self.timers.is_empty() { 0 } else { now_us() };
            for i in 0..self.poller.wait(wait, now) {
                let ready = match self.poller.ready(i) {
                    Some(ready) => ready,
                    None => continue,
                };
                if ready.token == LISTENER {
                    self.accept();
                    continue;
                }
                if ready.output {
                    self.flush(ready.token);
                }
                if ready.input {
                    self.read(ready.token);
                }
            }
            if !self.timers.is_empty() {
                self.tick();
            }
            for token in std::mem::take(&mut self.eager) {
                self.step(token);
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            let _ = socket.set_nodelay(true);
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.conns.push(None);
                self.generations.push(0);
                self.conns.len() - 1
            });
            let token = self.token(slot);
            if self.poller.add(&socket, token, false).is_ok() {
                self.conns[slot] = Some(Conn {
                    socket,
                    input: Vec::new(),
                    need: 0,
                    head: 0,
                    chunks: None,
                    out: Vec::new(),
                    out_at: 0,
                    doing: Doing::Nothing,
                    last: false,
                    closes: false,
                });
            }
        }
    }

    fn token(&self, slot: usize) -> Token {
        u64::from(self.generations[slot]) << 32 | slot as u64
    }

    fn conn(&mut self, token: Token) -> Option<&mut Conn> {
        let slot = token as u32 as usize;
        if self.generations[slot] != (token >> 32) as u32 {
            return None;
        }
        self.conns[slot].as_mut()
    }

    fn close(&mut self, token: Token) {
        if self.conn(token).is_some() {
            let slot = token as u32 as usize;
            self.conns[slot] = None;
            // Never so many that it reaches the listener's own token.
            self.generations[slot] = (self.generations[slot] + 1) & 0x7FFF_FFFF;
            self.free.push(slot);
        }
    }

    // -------------------------------------------------------------------------------------------- sending

    fn send(&mut self, token: Token, data: &[u8]) {
        let conn = match self.conn(token) {
            Some(conn) => conn,
            None => return,
        };
        let mut sent = 0;
        if conn.out.is_empty() {
            match conn.socket.write(data) {
                Ok(n) => sent = n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return self.close(token),
            }
            if sent == data.len() {
                return;
            }
        }
        let watched = !conn.out.is_empty();
        conn.out.extend_from_slice(&data[sent..]);
        if !watched {
            self.watch(token, true);
        }
    }

    fn watch(&mut self, token: Token, output: bool) {
        let slot = token as u32 as usize;
        if let Some(conn) = &self.conns[slot] {
            let _ = self.poller.change(&conn.socket, token, output);
        }
    }

    fn flush(&mut self, token: Token) {
        let conn = match self.conn(token) {
            Some(conn) => conn,
            None => return,
        };
        while conn.out_at < conn.out.len() {
            match conn.socket.write(&conn.out[conn.out_at..]) {
                Ok(n) => conn.out_at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.close(token),
            }
        }
        conn.out.clear();
        conn.out_at = 0;
        let last = conn.last;
        let mut resumed = false;
        if let Doing::Stream(running) = &mut conn.doing {
            resumed = std::mem::take(&mut running.waits);
        }
        if last {
            return self.close(token);
        }
        self.watch(token, false);
        if resumed {
            self.eager.push(token);
        }
    }

    /// No more comes on this connection.
    fn hang_up(&mut self, token: Token) {
        match self.conn(token) {
            Some(conn) if !conn.out.is_empty() => conn.last = true,
            _ => self.close(token),
        }
    }

    // ------------------------------------------------------------------------------------------- streaming

    /// What is due begins, or goes on.
    fn tick(&mut self) {
        let now = now_us();
        while let Some(Reverse((due_us, token))) = self.timers.peek().copied() {
            if due_us > now {
                break;
            }
            self.timers.pop();
            let conn = match self.conn(token) {
                Some(conn) => conn,
                None => continue,
            };
            match std::mem::replace(&mut conn.doing, Doing::Nothing) {
                Doing::Later(answer) => self.begin(token, answer),
                other => {
                    conn.doing = other;
                    self.step(token);
                }
            }
        }
    }

    fn begin(&mut self, token: Token, answer: Answer) {
        let script = answer.script;
        if script.status != 200 {
            let mut body = Vec::new();
            answer.write_error(&mut body);
            let retry = script.retry_after_s.map_or(String::new(), |s| format!("retry-after: {s}\r\n"));
            return self.reply(token, &format!("{} Told So\r\n{retry}", script.status), &body);
        }
        if !script.streams {
            return self.unary(token, &answer);
        }
        self.send(
            token,
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        let due_us = now_us() + script.delay_ms * 1000;
        let running = Running::new(answer, due_us);
        if let Some(conn) = self.conn(token) {
            conn.doing = Doing::Stream(running);
            if script.gap_ms == 0 && script.delay_ms == 0 {
                self.eager.push(token);
            } else {
                self.timers.push(Reverse((due_us, token)));
            }
        }
    }

    /// Send what is next of a stream, and see to it that it goes on.
    fn step(&mut self, token: Token) {
        let (mut chunk, mut event) = (std::mem::take(&mut self.chunk), std::mem::take(&mut self.event));
        chunk.clear();
        if let Some((running, blocked)) = self.running(token) {
            if blocked {
                running.waits = true;
            } else {
                let (gap_ms, due_us) = (running.answer.script.gap_ms, running.due_us);
                running.due_us = due_us + gap_ms * 1000;
                let end = running.write(&mut chunk, &mut event);
                let next_us = running.due_us;
                self.send(token, &chunk);
                match end {
                    End::No if gap_ms == 0 => self.eager.push(token),
                    End::No => self.timers.push(Reverse((next_us, token))),
                    End::Clean => self.idle(token),
                    End::Cut => self.hang_up(token),
                    End::Stall => self.stall(token),
                }
            }
        }
        self.chunk = chunk;
        self.event = event;
    }

    /// The stream of a connection, and whether its socket takes nothing at the moment.
    fn running(&mut self, token: Token) -> Option<(&mut Running, bool)> {
        let conn = self.conn(token)?;
        let blocked = !conn.out.is_empty();
        match &mut conn.doing {
            Doing::Stream(running) => Some((running, blocked)),
            _ => None,
        }
    }

    fn stall(&mut self, token: Token) {
        if let Some(conn) = self.conn(token) {
            conn.doing = Doing::Stalled;
        }
    }

    fn idle(&mut self, token: Token) {
        if let Some(conn) = self.conn(token) {
            conn.doing = Doing::Nothing;
            if conn.closes {
                self.hang_up(token);
            } else if !conn.input.is_empty() {
                self.serve(token);
            }
        }
    }

    // ---------------------------------------------------------------------------------------- other answers

    fn unary(&mut self, token: Token, answer: &Answer) {
        let mut answer = answer.clone();
        let wrong = answer.script.wrong.map(|(wrong, _)| wrong);
        if wrong == Some(Wrong::Mix) {
            answer.mark = another(&answer.mark);
        }
        let mut body = std::mem::take(&mut self.event);
        body.clear();
        answer.write_unary(&mut body);
        let head = format!("200 OK\r\nx-request-id: req-{}\r\n", String::from_utf8_lossy(&answer.mark));
        match wrong {
            Some(Wrong::Junk) => self.reply(token, &head, b"{\"garbage"),
            Some(Wrong::Cut | Wrong::Stall) => {
                let half =
                    format!("HTTP/1.1 {head}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
                self.send(token, half.as_bytes());
                self.send(token, &body[..body.len() / 2]);
                if wrong == Some(Wrong::Cut) {
                    self.hang_up(token);
                } else {
                    self.stall(token);
                }
            }
            _ => self.reply(token, &head, &body),
        }
        self.event = body;
    }

    fn reply(&mut self, token: Token, status_and_headers: &str, body: &[u8]) {
        let mut out = std::mem::take(&mut self.chunk);
        out.clear();
        put!(out, b"HTTP/1.1 ", status_and_headers, b"content-type: application/json\r\ncontent-length: ");
        put!(out, crate::formats::number(body.len() as u64), b"\r\n\r\n", body);
        self.send(token, &out);
        self.chunk = out;
        if self.conn(token).map_or(false, |conn| conn.closes) {
            self.hang_up(token);
        }
    }

    // ------------------------------------------------------------------------------------------- requests

    fn read(&mut self, token: Token) {
        loop {
            let conn = match self.conn(token) {
                Some(conn) => conn,
                None => return,
            };
            if matches!(conn.doing, Doing::Stalled) {
                // Only its end is of interest.
                if !matches!(conn.socket.read(&mut [0; 4096]), Ok(n) if n > 0) {
                    self.close(token);
                }
                return;
            }
            let room = conn.need.saturating_sub(conn.input.len()).max(ROOM);
            match sys::read_onto(&conn.socket, &mut conn.input, room) {
                Ok(0) => return self.close(token),
                // Epoll tells again where there is more.
                Ok(n) if n < room => break,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(token),
            }
        }
        self.serve(token);
    }

    /// Answer the requests at the start of the buffer, as far as they are whole and nothing else is being answered.
    fn serve(&mut self, token: Token) {
        while let Some(conn) = self.conn(token) {
            if !matches!(conn.doing, Doing::Nothing) || !conn.is_whole() {
                return;
            }
            let input = std::mem::take(&mut conn.input);
            let (head, need) = (conn.head, conn.need);
            let decoded = conn.chunks.take();
            conn.need = 0;
            let body = decoded.as_ref().map_or(&input[head..need], |(_, _, said)| said);
            self.answer(token, &input[..head], body);
            if let Some(conn) = self.conn(token) {
                conn.input = input;
                conn.input.drain(..need);
                if conn.input.capacity() > KEPT_ROOM && conn.input.is_empty() {
                    conn.input = Vec::new();
                }
            }
        }
    }

    fn answer(&mut self, token: Token, head: &[u8], body: &[u8]) {
        let line = &head[..find_byte(head, b'\r').unwrap_or(0)];
        let path = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        let path = std::str::from_utf8(path).unwrap_or_default();
        let plain = path.split('?').next().unwrap_or_default();
        if plain == "/health" {
            return self.reply(token, "200 OK\r\n", b"{}");
        }
        if let Some(counted) = count_of_tokens(plain, body) {
            return self.reply(token, "200 OK\r\n", counted.as_bytes());
        }
        let segment = plain[1.min(plain.len())..].split('/').next().unwrap_or_default();
        let format = format_of(plain);
        let said = Script::parse(segment).or_else(|| Script::parse(model(plain, body)));
        let mut script = match (said, format) {
            (Some(script), _) => script,
            (None, Some(format)) if wants_stream(format, plain, body) => self.default,
            (None, Some(_)) => Script::default(),
            (None, None) => return self.reply(token, "404 Not Found\r\n", b"{}"),
        };
        if script.every > 1 {
            script = script.of_request(self.serial);
            self.serial += 1;
        }
        if plain.ends_with("/embeddings") && script.status == 200 {
            return self.reply(token, "200 OK\r\n", EMBEDDING);
        }
        let answer = Answer { format: format.unwrap_or(Format::Chat), mark: mark(body), script };
        if script.head_ms == 0 {
            return self.begin(token, answer);
        }
        if let Some(conn) = self.conn(token) {
            conn.doing = Doing::Later(answer);
            self.timers.push(Reverse((now_us() + script.head_ms * 1000, token)));
        }
    }
}

impl Conn {
    /// Whether `input` begins with a whole request; then `head` and `need` say how much of it that is.
    fn is_whole(&mut self) -> bool {
        if self.need == 0 {
            let head = match http::head(&self.input) {
                Some(head) => head,
                None => return false,
            };
            self.head = head.size;
            self.need = head.size;
            self.closes = head.closes;
            match head.framing {
                Some(Framing::Length(bytes)) => self.need += bytes,
                Some(Framing::Chunked) => self.chunks = Some((Body::new(Framing::Chunked), head.size, Vec::new())),
                _ => {}
            }
        }
        if let Some((body, taken, said)) = &mut self.chunks {
            loop {
                let mut rest = &self.input[*taken..];
                let piece = body.next(&mut rest);
                *taken = self.input.len() - rest.len();
                match piece {
                    Ok(Piece::Data(part)) => said.extend_from_slice(part),
                    Ok(Piece::More) => return false,
                    Ok(Piece::End) | Err(()) => break,
                }
            }
            self.need = *taken;
        }
        self.input.len() >= self.need
    }
}
