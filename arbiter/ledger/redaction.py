"""What must not be kept: credentials in texts and headers, taken out before anything is written down (SPEC 7.8).

Theory of operation. A text is searched for the few literals that credentials begin with, which costs little; where one
stands, and only there, a regular expression says whether it is one. So the cost is that of looking for literals, and of
reading on from each as far as a credential goes. No expression reads far, fails, and tries the same text in another
way: what it repeats without a bound it never gives back (`++`).

Patterns of the operator's own see a text in overlapping windows: what one costs is then proportional to the text,
whatever it is made of.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from arbiter.config import credentials
from arbiter.log import Blotter

MASK = "***"
WINDOW, OVERLAP = 1024, 256  # characters; a longer match of a configured pattern may be missed

Found = re.Match[str]


class _Kind(NamedTuple):
    """One kind of credential. A match of `pattern` begins with one of `literals`; `said` is what stands for it."""

    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    said: Callable[[Found], str]


def _whole(literals: tuple[str, ...], pattern: str) -> _Kind:
    """A credential by its own shape. It stands where a word begins: at a boundary, or behind an escape of JSON that is
    text within text."""
    begins = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=\\u00[0-9a-fA-F][0-9a-fA-F]))"
    return _Kind(literals, re.compile(begins + pattern), lambda found: MASK)


def _named(literals: tuple[str, ...], pattern: str, said: Callable[[Found], str] | None = None) -> _Kind:
    """A credential by what stands before it: the first group, which is kept."""
    return _Kind(literals, re.compile(pattern), said or (lambda found: found[1] + MASK))


def _basic(found: Found) -> str:
    """A name and a password in base64. Other words stand behind "Basic" too."""
    coded = found[2].rstrip("=")
    try:
        pair = base64.b64decode(coded + "=" * (-len(coded) % 4), b"-_" if {"-", "_"} & set(coded) else None).decode()
    except ValueError:
        return found[0]
    return found[1] + MASK if ":" in pair and pair.isprintable() else found[0]


def _token(found: Found) -> str:
    """Keys have digits among their letters; the name of a field or of a variable has them at the end, if at all. Around
    a `=` with blanks stands code as often as a setting, where names have digits in one place at most."""
    value, is_spaced = found["value"], found["bare"] not in (None, "=")
    is_secret = value.isdigit() or (_DIGITS_TWICE if is_spaced else _DIGITS_WITHIN).search(value)
    return found[1] + MASK if is_secret and _kind(found) is not None else found[0]


def _password(found: Found) -> str:
    """In prose and code a word behind that name is mostly another name."""
    value = found["value"].rstrip(".,;:!?)")
    is_code = found["colon"] is not None and ("(" in value or "[" in value)
    is_secret = (
        not is_code
        and _kind(found) is not None
        and (credentials.is_no_word(value) or (found["is"] is None and credentials.is_secret("secret", value)))
    )
    return found[1] + MASK if is_secret else found[0]


def _kind(found: Found) -> credentials.Kind | None:
    """What the whole name is that a match is the end of. Where it is told by a bare `=`, it is a parameter's, a field's
    or a variable's, and begins where such a thing begins; by a blank alone, that of a command's option."""
    text, start = found.string, found.start()
    before = _NAME_BEFORE.search(text, max(0, start - credentials.MAX_NAME), start)
    begins = before.start() if before is not None else start
    if found["bare"] and begins and text[begins - 1] not in _BEFORE_BARE:
        return None
    if found["blank"] and not text.startswith("--", begins):
        return None
    return credentials.kind_of(text[begins : found.end("name")])


def _cookies(found: Found) -> str:
    """Cookies of which one is no word but a number, or part of one: `theme=dark` is anybody's."""
    values = [pair.partition("=")[2] for pair in found[2].split(";")]
    is_secret = any(len(value) >= 8 and any(map(str.isdigit, value)) for value in values)
    return found[1] + MASK if is_secret else found[0]


_DIGITS_WITHIN = re.compile(r"[0-9][A-Za-z]")
_DIGITS_TWICE = re.compile(r"[0-9][^0-9]++[0-9]")
_QUOTE = r"\\{0,4}[\"'`]"
# "name": "value", name="value", h["name"] = "value"
_PAIRED = rf"(?:{_QUOTE})?\]?\s{{0,4}}(?:=>|[:=,])\s{{0,4}}{_QUOTE}"
# name: value, as in a header; but not name: value.of(an.expression)
_COLON = r"[ \t]{0,4}:[ \t]{0,4}(?![A-Za-z_$]++[.(\[])"
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_-]++\Z")
_BEFORE_BARE = frozenset("?&;: \t\r\n\"'`\\")
_BARE = r"(?P<bare>[ \t]{0,4}=[ \t]{0,4})(?![A-Za-z_$]++[.(\[])"  # as in a form or a file of settings; no expression
_BLANK = rf"(?P<blank>[ \t]{{1,2}}(?:{_QUOTE})?)"  # --name value, as on a command line
_IS = rf"[ \t]{{1,2}}(?:is|was)[ \t:]{{1,3}}(?:{_QUOTE})?(?![A-Za-z_$]++[.(\[])"  # the password is value
_TAG = r">(?=[^<>\s]{1,256}</)"  # <name>value</name>
# How names of credentials end. What stands before that, `credentials` is asked about.
_ENDS = (
    *("uthorization", "UTHORIZATION", "oken", "OKEN", "ecret", "ECRET", "redential", "REDENTIAL", "jwt", "Jwt", "JWT"),
    *("_key", "-key", "_KEY", "-KEY", "Key", "pikey", "piKEY", "PIKEY"),
    *("-auth", "-Auth", "-AUTH", 'auth"', "auth'", "auth\\", "-sid", "-Sid", "-SID"),
)
_END = r"(?P<name>(?i:uthorization|oken|ecret|redentials?|jwt|[-_]?key|pikey|-auth|auth(?=\\{0,4}[\"'])|-sid))"
_SCHEME = r"(?:[A-Za-z][A-Za-z0-9-]{0,31}[ \t]{1,4})?"  # Token, ApiKey, ...
_TOKEN = r"[A-Za-z0-9._~+/=-]{16,}+(?![(\[])"
_JAR = rf"(?:(?i:ookies?)(?:{_QUOTE})?\]?\s{{0,4}}(?:=>|[:=,])?| -b)\s{{0,4}}(?:{_QUOTE})?"
_COOKIE = r"[^\s=;,\"'\\]{1,128}=[^\s;\"'\\]*+"
_CURL = rf"curl(?= )(?:[^c]|c(?!url )){{0,400}}?\s(?:-u|--user)[\s=]{{1,4}}(?:{_QUOTE})?[^\s:\"'\\]{{0,64}}:"
_PEM = r"[A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
# To its end; of one that was cut off, what may be base64 or a header. Code that only names the line has no next line.
_PEM_TEXT = rf"(?:\s|\\[nr])++(?:(?:[^-]|-(?!----(?:BEGIN|END) ))*+-----END {_PEM}|[A-Za-z0-9+/=\s\\,:.-]{{8,}}+)"

_KINDS: tuple[_Kind, ...] = (
    # Vendors publish these for secret scanners.
    _whole(("sk-",), r"sk-(?!ecdsa-)[A-Za-z0-9_-]{16,}+"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, ...
    _whole(("arb-",), r"arb-[A-Za-z0-9_-]{16,}+"),  # our own clients'
    _whole(("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _whole(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{20,}+"),
    _whole(("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}+"),
    _whole(("glpat-",), r"glpat-[A-Za-z0-9_-]{16,}+"),
    _whole(("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}"),
    _whole(("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _whole(("xapp-",), r"xapp-[A-Za-z0-9-]{10,}+"),
    _whole(("AIza",), r"AIza[A-Za-z0-9_-]{30,}+"),
    _whole(("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}+"),
    _whole(("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    _whole(("gsk_",), r"gsk_[A-Za-z0-9]{20,}+"),
    _whole(("xai-",), r"xai-[A-Za-z0-9]{20,}+"),
    _whole(("hf_",), r"hf_[A-Za-z0-9]{20,}+"),
    _whole(("SG.",), r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    _whole(("npm_",), r"npm_[A-Za-z0-9]{30,}+"),
    _whole(("pypi-",), r"pypi-[A-Za-z0-9_-]{40,}+"),
    _whole(("eyJ",), r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"),
    _whole(("-----BEGIN ",), rf"-----BEGIN {_PEM}{_PEM_TEXT}"),
    # What people paste with a request.
    _named(
        ("Bearer", "bearer", "BEARER"),
        r"((?i:bearer)\s++)(?:(?=[A-Za-z._~+/=-]*+[0-9])[A-Za-z0-9._~+/=-]{10,}+|[A-Za-z0-9._~+/=-]{24,}+)",
    ),
    _named(("Basic", "basic", "BASIC"), r"((?i:basic)\s{1,4})([A-Za-z0-9+/_-]{8,}+={0,2})", _basic),
    _named(_ENDS, rf"({_END}(?:{_PAIRED}|{_COLON}|{_BARE}|{_BLANK}|{_TAG}){_SCHEME})(?P<value>{_TOKEN})", _token),
    _named(
        ("assword", "ASSWORD", "asswd", "ASSWD", "assphrase", "ASSPHRASE"),
        rf"((?P<name>(?i:assword|asswd|assphrase))(?:{_PAIRED}|(?P<colon>{_COLON}|(?P<is>{_IS}))|{_BARE}|{_BLANK}|{_TAG}))"
        r"(?P<value>[^\s\"'`\\&<>]{6,256}+)",
        _password,
    ),
    _named(("ookie", "OOKIE", " -b "), rf"({_JAR})({_COOKIE}(?:;\s?{_COOKIE})*+)", _cookies),
    _named(("curl ",), rf"({_CURL})(?!\d++\b)[^\s\"'\\]{{1,256}}"),  # behind -u; two numbers are docker's
    _named(("hooks.slack.com/",), r"(hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]{16,}+"),
    _named((":AA",), r"(?<=[0-9]{8})(:)AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),  # a bot's of Telegram, behind its id
    _named(("&sig=", "?sig="), r"([&?]sig=)[A-Za-z0-9%+/=_-]{30,}+"),  # Azure's shared access signatures
    _named(
        ("machine ",), r"(machine\s{1,4}\S{1,256}\s{1,8}login\s{1,4}\S{1,256}\s{1,8}password\s{1,4})[^\s\"'\\]{1,256}"
    ),
    _named(("://",), r"(://[^\s/?#:@\"'<>\\]{0,256}:)[^\s/?#@\"'<>\\]{1,256}(?=@)"),
    _named(
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
        r"((?i:aws_secret_access_key|secretaccesskey)[\"'\\\s]{0,8}[=:][\"'\\\s]{0,8})[A-Za-z0-9/+=]{30,}+",
    ),
)
_LITERALS = tuple(literal.encode() for kind in _KINDS for literal in kind.literals)
# How other names of credentials end, where they are members in JSON.
_MEMBERS = tuple(
    f'{name}"'.encode()
    for end in ("key", "keys", "auth", "bearer", "sid", "pwd", "passcode")
    for name in (end, end.capitalize(), end.upper())
)


class Redactor:
    """Takes secrets out. `secrets` are the gateway's own, `patterns` what the operator adds."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._blot = Blotter(secrets)
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def suspects(self, raw: bytes) -> bool:
        """Whether the JSON text `raw` may hold something to take out; False is certain of texts without odd escapes."""
        if self._patterns or b"\\u" in raw or b"\\/" in raw:
            return True
        return any(literal in raw for literal in (*_LITERALS, *_MEMBERS)) or self._blot.raw(raw) != raw

    def __call__(self, text: str) -> str:
        """`text` with a mask for each secret; the very same where it holds none."""
        text = self._blot(text)
        for kind in _KINDS:
            for literal in kind.literals:
                if literal in text:
                    text = _masked(text, literal, kind)
        for pattern in self._patterns:
            text = _without(pattern, text)
        return text

    def member(self, name: str, text: str) -> str:
        """The same for `text` under a name in JSON: many a key has no shape, and only `x-api-key` says what it is."""
        kind = credentials.kind_of(name)
        if kind is None:
            return self(text)
        header = f"{name}: "
        said = self(header + text)
        said = said[len(header) :] if said.startswith(header) else self(text)
        return MASK if said == text and credentials.is_secret(kind, text) else said

    def headers(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Headers as they may be kept: the values of credential-shaped names are masked whole."""
        return {name: MASK if credentials.is_credential(name) else self(value) for name, value in fields.items()}


def is_opaque(name: str, beside: Mapping[str, Any]) -> bool:
    """Whether a member is one whose text belongs to somebody else: an id, a signature, what only its maker can read.

    Changed it would be refused, and it says nothing to a reader. `beside` is the object that holds it.
    """
    if name in ("encrypted_content", "thought_signature", "thoughtSignature"):
        return True
    kind = beside.get("type")
    if not isinstance(kind, str):
        return name == "tool_call_id" and beside.get("role") == "tool"
    if name == "signature":
        return is_signed(beside)
    if name == "data":
        return kind in ("redacted_thinking", "reasoning.encrypted")
    if name == "id":
        return kind in ("function", "reasoning", "custom") or kind.endswith(("tool_use", "_call"))
    return (name == "tool_use_id" and kind.endswith("tool_result")) or (
        name == "call_id" and kind.endswith(("_call", "_call_output"))
    )


def is_signed(value: Mapping[str, Any]) -> bool:
    """Whether an object is thinking that its maker has signed."""
    kind = value.get("type")
    return "signature" in value and isinstance(kind, str) and (kind == "thinking" or kind.startswith("reasoning"))


def _masked(text: str, literal: str, kind: _Kind) -> str:
    """`text` without what is of this kind and begins with `literal`."""
    out: list[str] = []
    done, at = 0, text.find(literal)
    while at >= 0:
        found = kind.pattern.match(text, at)
        if found is None:
            at = text.find(literal, at + 1)
            continue
        said = kind.said(found)
        if said != found[0]:
            out += (text[done:at], said)
            done = found.end()
        at = text.find(literal, found.end())
    return "".join((*out, text[done:])) if out else text


def _without(pattern: re.Pattern[str], text: str) -> str:
    if len(text) <= WINDOW + OVERLAP:
        return pattern.sub(MASK, text)
    spans: list[tuple[int, int]] = []
    for start in range(0, len(text), WINDOW):
        spans += [match.span() for match in pattern.finditer(text, start, start + WINDOW + OVERLAP)]
    if not spans:
        return text
    spans.sort()
    out, at = [], 0
    for start, end in spans:
        if start >= at:
            out += [text[at:start], MASK]
        at = max(at, end)
    return "".join((*out, text[at:]))
