//! What can be wrong with an answer, by kind.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No connection.
    Refused,
    /// Answered with another status than 200.
    Status(u16),
    /// No byte for as long as patience lasts.
    Stalled,
    /// The connection ended before the answer.
    Cut,
    /// Not HTTP, not server-sent events or not JSON.
    Garbled,
    /// An event that has no place here, or the wrong text in it.
    Content,
    /// Another request's text.
    Mixed,
    /// Text missing, twice, or in another order.
    Order,
    /// Fewer or more events with text than there should be.
    Count,
    /// A clean end without the event that ends a stream of this format.
    Terminal,
    /// Another number of tokens than the upstream counted.
    Usage,
    /// Bytes or events behind the end.
    Trailing,
    /// An error within a stream, told in the words of its format.
    ErrorEvent,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Refused => "refused",
            Kind::Status(status) => return write!(f, "status_{status}"),
            Kind::Stalled => "stalled",
            Kind::Cut => "cut",
            Kind::Garbled => "garbled",
            Kind::Content => "content",
            Kind::Mixed => "mixed",
            Kind::Order => "order",
            Kind::Count => "count",
            Kind::Terminal => "terminal",
            Kind::Usage => "usage",
            Kind::Trailing => "trailing",
            Kind::ErrorEvent => "error_event",
        })
    }
}

#[derive(Debug)]
pub struct Fault {
    pub kind: Kind,
    pub detail: String,
}

impl Fault {
    /// `what`, and the beginning of the bytes in question.
    pub fn new(kind: Kind, what: &str, bytes: &[u8]) -> Self {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
        Fault { kind, detail: format!("{what}: {shown}") }
    }

    pub fn say(kind: Kind, detail: impl Into<String>) -> Self {
        Fault { kind, detail: detail.into() }
    }
}
