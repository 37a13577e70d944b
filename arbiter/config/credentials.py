"""Names under which credentials stand: of headers, JSON members, query parameters and form fields (SPEC 7.8).

A name is read without its separators and its case, so that `access_token`, `accessToken`, `Access-Token` and
`ACCESSTOKEN` are one. It tells what it is by its end: an `api_key_id` is an id, a `token_count` a number, and
`max_tokens` many of them. What a name says is not enough to take a text out of a conversation, where names also stand
beside types and placeholders: `is_secret` looks at the text, too. A header's value is nobody's prose, and goes by its
name alone.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal

MAX_NAME = 80  # characters; what is longer is a text

Kind = Literal["password", "secret"]
"""A password is whatever somebody thought of; other secrets were made by a machine, and look like it."""

_PASSWORD: Final = re.compile(r"(?:password|passwd|passphrase|passcode|pwd)s?\d*$")
_SECRET: Final = re.compile(
    r"(?:secret|credential|authorization|auth|bearer|jwt|token|cookie"
    r"|(?:api|access|secret|private|signing|encryption|auth|account|master|subscription|shared|ssh|deploy|license|arbiter)key"
    r"|^x?sid|connectsid|phpsessid|jsessionid)\d*$"
)
_SEVERAL: Final = re.compile(r"(?:secrets|credentials|cookies|jwts|(?:api|access|secret|private)keys)$")
_NO_TOKEN: Final = re.compile(
    r"(?:page|next|prev|previous|continuation|cursor|sync|resume|start|end|stop|begin|bos|eos|pad|unk|cls|sep|mask|fill"
    r"|special|first|last|new|max|min|per|count|num|prompt|completion|input|output|text|image|audio|design|cancellation"
    r"|change|nonce|placeholder)token$"
)
"""A place in a list, a word of a model's vocabulary, a number: they open nothing."""

_IN_HEADERS: Final = ("authorization", "cookie", "token", "secret", "key", "password", "credential", "signature")
_NUMBERS: Final = re.compile(
    r"^(?:x|anthropic)?ratelimit|token(?:count|limit|budget)s?$"
    r"|(?:max|min|total|input|output|prompt|completion|cached|reasoning|thinking|remaining|used|limit|new|budget)tokens$"
)
"""Headers that speak of tokens and mean how many there are, or of what kind."""

_LETTERS: Final = re.compile(r"[A-Za-z_.-]++")
_WORD: Final = re.compile(r"[A-Z]?[a-z]++|[A-Z]++")
_LETTERS_OF_A_WORD: Final = 3  # so many at least, on the average; of those at random there are about two
_PLACEHOLDER: Final = re.compile(r"[$<{%\[(]|(?:env|file|vault|secret|op|arn|ref)[:.]|process\.|os\.|([*xX.•-])\1*+$")
_DIGIT: Final = re.compile(r"[0-9]")


@functools.lru_cache(4096)
def kind_of(name: str) -> Kind | None:
    """What stands under this name of a JSON member, a parameter or a field; None where it is no credential."""
    if len(name) > MAX_NAME:
        return None
    plain = _plain(name)
    if _PASSWORD.search(plain):
        return "password"
    if _SECRET.search(plain) and not _NO_TOKEN.search(plain):
        return "secret"
    return "secret" if _SEVERAL.search(plain) else None


def is_credential(name: str) -> bool:
    """Whether a header of this name is likely to hold a credential."""
    plain = _plain(name)
    if _NUMBERS.search(plain):
        return False
    return kind_of(name) is not None or any(word in plain for word in _IN_HEADERS)


def is_secret(kind: Kind, text: str) -> bool:
    """Whether a text that stands under the name of a credential is one, and no type, placeholder or variable.

    Shapes: a machine's has no blank in it, and is no row of words; a person's may be a single word.
    """
    if not 4 <= len(text) <= 65_536 or _PLACEHOLDER.match(text):
        return False
    if kind == "password":
        return not (text.islower() and text in _TYPES)
    is_made = len(text) >= 16 or (len(text) >= 8 and _DIGIT.search(text) is not None)
    return is_made and text.isascii() and not any(map(str.isspace, text)) and not _is_words(text)


def is_no_word(text: str) -> bool:
    """Whether what stands behind `password:` is none of the words that stand there in prose and code: letters with
    digits among them or behind, and no name of a type, of an encoding, of a hash or of a variable; or digits alone."""
    if len(text) < 6 or not text.isascii() or _DIGIT.search(text) is None:
        return False
    return text.isdigit() or (any(map(str.isalpha, text)) and _NUMBERED.match(text) is None)


_NUMBERED: Final = re.compile(
    r"(?:[A-Za-z]*(?:int|float|char|varchar|string|str|text|bytes?|sha|md|base|utf|latin|ascii|argon|pbkdf|scrypt|bcrypt"
    r"|field|input|arg|param|var|pass|password|passwd|pwd|value|key|user|name|secret|rule|step|line|page|version|v|bit)"
    r"[-_]?)[0-9]+(?:[a-z]{0,3}|mb[0-9])(?:[-_.][A-Za-z0-9]*)*$"
    r"|[0-9.,-]+[-_]?(?:chars?|characters?|bits?|bytes?|digits?|letters?|days?|times?|[a-z]{1,2})?$"
    r"|[A-Za-z]+[/_-]{1,2}[A-Za-z0-9/_-]*$",
    re.IGNORECASE,
)
"""`uint8`, `sha256`, `base64url`, `password2`, `8-characters`, `min-length-8`, `/etc/x2`."""

_TYPES: Final = frozenset(
    ("string", "text", "password", "passwd", "secret", "required", "optional", "none", "null", "true", "false",
     "hidden", "redacted", "changeme", "example", "your-password", "your_password")
)  # fmt: skip
"""What examples and schemas have in the place of a password."""


def _is_words(text: str) -> bool:
    """Whether these are names, as code and examples have them: `your-token-here`, `tokenOfTheUser`."""
    return _LETTERS.fullmatch(text) is not None and len(text) >= _LETTERS_OF_A_WORD * len(_WORD.findall(text))


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
