//! What the kernel does for both sides: sockets that never block, one epoll, a clock in microseconds.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};

const READY: usize = 256;
const TIMER: u64 = u64::MAX;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn timespec(us: u64) -> libc::timespec {
    libc::timespec { tv_sec: (us / 1_000_000) as libc::time_t, tv_nsec: (us % 1_000_000 * 1000) as libc::c_long }
}

/// A moment on a clock that never goes back.
pub fn now_us() -> u64 {
    let mut t = timespec(0);
    // SAFETY: `t` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// CPU time that this process has had.
pub fn cpu_us() -> u64 {
    let mut t = timespec(0);
    // SAFETY: `t` is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// How long the first thread of this process was ready to run and had no core to do it on; nothing where the kernel does
/// not count that. Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
pub fn core_wait_us() -> Option<u64> {
    parse_core_wait_us(&std::fs::read_to_string("/proc/self/schedstat").ok()?)
}

/// Three numbers: nanoseconds on a core, nanoseconds that it waited for one, and turns. A kernel that does not count says 0.
fn parse_core_wait_us(schedstat: &str) -> Option<u64> {
    let mut numbers = schedstat.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (ran_ns, waited_ns) = (numbers.next()??, numbers.next()??);
    Some(waited_ns / 1000).filter(|_| ran_ns > 0)
}

/// As many open files as this process may have at all: each connection is one.
pub fn raise_file_limit() {
    let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `files` is ours; where the limit cannot be raised, connections will say so.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
    }
}

/// How long `Poller::wait` may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    Not,
    Forever,
    /// To the millisecond after this moment: what is due together is then done together.
    About(u64),
    /// To the microsecond.
    Until(u64),
}

/// What happened to the socket of `token`.
#[derive(Clone, Copy)]
pub struct Ready {
    pub token: u64,
    pub input: bool,
    pub output: bool,
}

pub struct Poller {
    fd: RawFd,
    timer: RawFd,
    armed_us: u64,
    ready: Vec<libc::epoll_event>,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system calls; the descriptors live as long as the process.
        let (fd, timer) = unsafe {
            (
                checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                checked(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC))?,
            )
        };
        let poller = Poller { fd, timer, armed_us: 0, ready: vec![libc::epoll_event { events: 0, u64: 0 }; READY] };
        // Edge-triggered: an expiry is told once and need not be read.
        poller.control(libc::EPOLL_CTL_ADD, timer, TIMER, libc::EPOLLIN | libc::EPOLLET)?;
        Ok(poller)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, token: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` outlives the call.
        checked(unsafe { libc::epoll_ctl(self.fd, what, fd, &mut event) })?;
        Ok(())
    }

    /// Watch a socket until it is closed; with `output` also until it takes bytes.
    pub fn add(&self, socket: &impl AsRawFd, token: u64, output: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), token, interest(output))
    }

    pub fn change(&self, socket: &impl AsRawFd, token: u64, output: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket.as_raw_fd(), token, interest(output))
    }

    /// How many sockets are ready; `ready(i)` tells which. `now_us` may be a little old, if that does no harm.
    pub fn wait(&mut self, wait: Wait, now_us: u64) -> usize {
        let timeout_ms = match wait {
            Wait::Not => 0,
            Wait::Forever => -1,
            Wait::About(due_us) => (due_us.saturating_sub(now_us) / 1000 + 1).min(60_000) as libc::c_int,
            Wait::Until(due_us) => {
                self.arm(due_us, now_us);
                -1
            }
        };
        // SAFETY: the kernel writes at most READY events into a vector of that length.
        let n = unsafe { libc::epoll_wait(self.fd, self.ready.as_mut_ptr(), READY as libc::c_int, timeout_ms) };
        n.max(0) as usize
    }

    fn arm(&mut self, due_us: u64, now_us: u64) {
        if due_us == self.armed_us && due_us > now_us {
            return;
        }
        self.armed_us = due_us;
        let timer = libc::itimerspec { it_interval: timespec(0), it_value: timespec(due_us.max(1)) };
        // SAFETY: `timer` outlives the call. A moment that is past expires at once.
        unsafe { libc::timerfd_settime(self.timer, libc::TFD_TIMER_ABSTIME, &timer, std::ptr::null_mut()) };
    }

    /// The i-th of the sockets that the last `wait` found; none for the timer.
    pub fn ready(&self, i: usize) -> Option<Ready> {
        let event = self.ready[i];
        let (events, token) = (event.events as libc::c_int, event.u64);
        if token == TIMER {
            return None;
        }
        let broken = events & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
        Some(Ready {
            token,
            input: broken || events & libc::EPOLLIN != 0,
            output: broken || events & libc::EPOLLOUT != 0,
        })
    }
}

fn interest(output: bool) -> libc::c_int {
    libc::EPOLLIN | if output { libc::EPOLLOUT } else { 0 }
}

/// Begin to connect; the socket takes bytes once it is connected, or tells why not.
pub fn connect(to: &SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the new descriptor belongs to nobody else.
    let stream = unsafe { TcpStream::from_raw_fd(checked(libc::socket(family, kind, 0))?) };
    stream.set_nodelay(true)?;
    let done = match to {
        SocketAddr::V4(at) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: at.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(at.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect_raw(&stream, &address)
        }
        SocketAddr::V6(at) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: at.port().to_be(),
                sin6_flowinfo: at.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: at.ip().octets() },
                sin6_scope_id: at.scope_id(),
            };
            connect_raw(&stream, &address)
        }
    };
    match done {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(stream),
    }
}

fn connect_raw<A>(stream: &TcpStream, address: &A) -> io::Result<libc::c_int> {
    let size = std::mem::size_of::<A>() as libc::socklen_t;
    // SAFETY: `address` is a socket address of `size` bytes.
    checked(unsafe { libc::connect(stream.as_raw_fd(), (address as *const A).cast(), size) })
}

/// Listen with room for thousands who come at once; std's 128 would turn them away.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    // SAFETY: listening again only sets the backlog.
    checked(unsafe { libc::listen(listener.as_raw_fd(), 4096) })?;
    Ok(listener)
}

/// Read what is there, at most `room` bytes, to the end of `into`, without clearing that room first.
pub fn read_onto(stream: &TcpStream, into: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    into.reserve(room);
    // SAFETY: `reserve` made `room` bytes behind the vector's length; as many as the kernel wrote are then part of it.
    unsafe {
        let at = into.as_mut_ptr().add(into.len());
        let n = libc::recv(stream.as_raw_fd(), at.cast(), room, 0);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        into.set_len(into.len() + n as usize);
        Ok(n as usize)
    }
}

/// Where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    // SAFETY: both are slices of the lengths given; the C library's search looks at many bytes at a time.
    let at = unsafe { libc::memmem(hay.as_ptr().cast(), hay.len(), needle.as_ptr().cast(), needle.len()) };
    if at.is_null() {
        return None;
    }
    Some(at as usize - hay.as_ptr() as usize)
}

/// Where the first `byte` is.
pub fn find_byte(hay: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: as above.
    let at = unsafe { libc::memchr(hay.as_ptr().cast(), byte as libc::c_int, hay.len()) };
    if at.is_null() {
        return None;
    }
    Some(at as usize - hay.as_ptr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_core_is_the_kernels_second_number() {
        assert_eq!(parse_core_wait_us("314362000 113820999 2\n"), Some(113_820));
        for uncounted in ["0 0 0\n", "", "1", "1 x 2"] {
            assert_eq!(parse_core_wait_us(uncounted), None, "{uncounted:?}");
        }
    }

    #[test]
    fn a_wait_for_a_core_only_grows() {
        if let Some(before) = core_wait_us() {
            std::thread::yield_now();
            assert!(core_wait_us() >= Some(before));
        }
    }
}
