"""What names, model ids, header fields and secrets may be made of."""

from __future__ import annotations

import re

from arbiter.config.source import Fail

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDENTIFIER = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,254}[^\s\x00-\x1f\x7f])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_FIELD_VALUE = re.compile(r"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?|")
_SECRET = re.compile(r"[\x21-\x7e]*")
_TOKEN_CHARS = 16 << 10
# A repeat of a group that repeats itself, neither of them possessive: `(a+)+`, which a text can keep busy for ever.
_REPEATED = re.compile(r"(?<!\\)\((?!\?>)[^()]*(?<![+*?}\\])[+*}](?!\+)[^()]*\)(?:[+*]|\{\d*,\d*\})(?!\+)")

# These frame a message or belong to one connection; the transport alone decides them.
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# A caller's credentials for us, and what a browser adds by itself: never another host's business.
CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "x-arbiter-key", "x-goog-api-key", "api-key"})
# How the gateway itself asks, whoever asks it: bodies are unpacked here, and answers are asked for unpacked.
OURS = frozenset({"accept", "accept-encoding", "content-encoding", "content-type", "expect"})
PREFIX = "x-arbiter-"
"""What begins like this is said to the gateway, or by it."""


def check_name(text: str, fail: Fail) -> None:
    """A provider's or a client's name: it appears in paths, headers and metrics."""
    if not _NAME.fullmatch(text):
        raise fail("a name is 1 to 64 letters, digits, '.', '_' or '-', and begins with a letter or digit")


def check_identifier(text: str, fail: Fail) -> None:
    """A model id or an alias: vendors use '/', ':' and more, so only what cannot be printed is refused."""
    if not _IDENTIFIER.fullmatch(text):
        raise fail("a model name is 1 to 256 printable characters without spaces around them")


def check_header(name: str, value: str, fail: Fail) -> None:
    """One header field to send. Errors: a value that would end the field early is refused without being shown."""
    if not _TOKEN.fullmatch(name):
        raise fail("not the name of a header")
    if name.lower() in FRAMING:
        hint = "; use host:" if name.lower() == "host" else ""
        raise fail(f"this header belongs to the connection and cannot be set{hint}")
    if not _FIELD_VALUE.fullmatch(value):
        raise fail("a header value is printable Latin-1 text on one line")


def check_forwarded(name: str, fail: Fail) -> None:
    """The name of a caller's header that a provider may see, or a glob (`x-opencode-*`) over such names."""
    lower = name.lower()
    check_header(name, "", fail)
    if lower in CREDENTIALS:
        raise fail("a caller's credentials are never forwarded")
    if lower in OURS:
        raise fail("the gateway says this itself to each provider")
    if lower.startswith(PREFIX):
        raise fail("this is said to the gateway, and goes no further")


def is_token(value: object) -> bool:
    """Whether it can be a token, and travel in a header."""
    return isinstance(value, str) and 0 < len(value) <= _TOKEN_CHARS and _SECRET.fullmatch(value) is not None


def check_secret(text: str, fail: Fail) -> None:
    """A key or token: it travels in a header, so it is visible ASCII."""
    if not _SECRET.fullmatch(text):
        raise fail("a key is visible ASCII without spaces; is there a line break in it?")


def check_pattern(text: str, fail: Fail) -> None:
    """A regular expression of the operator's own, to be run over other people's text."""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise fail(f"not a regular expression: {error}") from None
    if pattern.search(""):
        raise fail("this matches everywhere, also where there is nothing")
    if _REPEATED.search(text):
        raise fail("a repeat inside of a repeat can take for ever; make the inner one possessive, as in (?:a++)+")
