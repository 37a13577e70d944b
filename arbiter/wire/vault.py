"""Seals reasoning for a client that cannot read it, and opens what comes back (SPEC 6.6).

An upstream wants its reasoning back as it gave it: signed, encrypted, or as text. A client of another format has no
place for that, but most have one for something opaque, which they hand along with the conversation. So it is all in
what they hand along, and nothing is remembered here: any worker that has the key can go on.

    arbiter-reasoning.1.<base64url of: key id (4) | nonce (12) | AES-256-GCM(msgpack of a Sealed) | tag (16)>

Bound to it are the client (as associated data), who thought it (`Origin`), the calls that it was thought for, and the
text that was said before. It never expires. The nonce is random: a key is good for four billion items.
"""

from __future__ import annotations

import functools
import os
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256

import msgspec
import xxhash
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from arbiter.errors import InvalidReasoning
from arbiter.model import Part, Place, RedactedThinking, Thinking

PREFIX = "arbiter-reasoning."
MARK = PREFIX.encode()
"""What every item begins with; a body without it holds none."""

UNSIGNED = f"{PREFIX}unsigned"
"""What stands as the signature of thinking that nobody signed: clients of Messages take a block without one for broken.
It proves nothing to anybody, and goes to no upstream."""

MAX_ITEM_BYTES = 4 << 20  # SPEC 6.6
MAX_SEALED_BYTES = 3 << 20
"""What an item of that length can hold, about; more is not sealed."""

KEY_BYTES = 32
_VERSION = "1."
_ID_BYTES, _NONCE_BYTES, _TAG_BYTES = 4, 12, 16


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Who thought it: in which format, behind which base URL (`home_of`), for which account, which model.

    `claude` is the Claude that it was, under the name that all homes of that model share; "" where it was none, or not
    at one of them. (An item that was sealed before there was such a name has none.)
    """

    format: str
    home: bytes
    account: str
    model: str
    claude: str = ""


class Thought(msgspec.Struct, frozen=True, array_like=True):
    """One piece of reasoning, and where it stood: behind so many characters that are no blanks, and so many calls.

    `data` is all of it where only its provider can read it, and `place` as in `model.RedactedThinking`; the others are
    those of `model.Thinking`.
    """

    said: int
    calls: int
    text: str = ""
    signature: str | None = None
    spelling: str | None = None
    item: bytes | None = None
    data: str | None = None
    place: Place = "block"

    def part(self) -> Part:
        if self.data is not None:
            return RedactedThinking(self.data, self.place)
        return Thinking(self.text, self.signature, self.spelling, self.item)


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """What an item holds. `calls` are the ids of the answer's calls up to the one that the item stands in front of,
    that one included; `said` is how much text was said before it, as in a Thought, and `digest` that of the text."""

    origin: Origin
    calls: tuple[str, ...]
    said: int
    digest: bytes
    thoughts: tuple[Thought, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sealed).decode


class Vault:
    """Deployment keys at work: the first seals, each opens what it sealed. `keys` are 32 bytes each, at least one."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._keys = {key_id(key): AESGCM(key) for key in reversed(keys)}
        self._sealing = key_id(keys[0])

    def seal(self, sealed: Sealed, owner: str | None) -> str | None:
        """Return the item for the client `owner`; None where it would be too large, or its text is no Unicode."""
        try:
            plain = _encode(sealed)
        except UnicodeEncodeError:
            return None
        if len(plain) > MAX_SEALED_BYTES:
            return None
        nonce = os.urandom(_NONCE_BYTES)
        secret = self._keys[self._sealing].encrypt(nonce, plain, _bound(owner))
        return PREFIX + _VERSION + urlsafe_b64encode(self._sealing + nonce + secret).decode()

    def open(self, item: str, owner: str | None) -> Sealed:
        """Return what the client `owner` was handed.

        Errors: InvalidReasoning where it is too long, no item, of a key that is none of ours, or another client's.
        """
        if len(item) > MAX_ITEM_BYTES:
            raise InvalidReasoning(f"it is longer than {MAX_ITEM_BYTES >> 20} MiB")
        if not item.startswith(PREFIX + _VERSION):
            raise InvalidReasoning("it is no item of a kind that this gateway knows")
        raw = _decoded(item[len(PREFIX + _VERSION) :])
        if len(raw) < _ID_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise InvalidReasoning("it is damaged")
        key = self._keys.get(raw[:_ID_BYTES])
        if key is None:
            raise InvalidReasoning("it was sealed with a key that this gateway does not have")
        behind = _ID_BYTES + _NONCE_BYTES
        try:
            return _decode(key.decrypt(raw[_ID_BYTES:behind], raw[behind:], _bound(owner)))
        except (InvalidTag, msgspec.MsgspecError):
            raise InvalidReasoning("it is damaged, or was given to another client") from None


@functools.lru_cache(8)
def vault_of(keys: tuple[bytes, ...]) -> Vault | None:
    """The vault of a configuration's deployment keys; None where it has none, and nothing can be sealed."""
    return Vault(keys) if keys else None


def key_id(key: bytes) -> bytes:
    """What an item names its key by."""
    return sha256(b"arbiter reasoning key\0" + key).digest()[:_ID_BYTES]


def home_of(url: str) -> bytes:
    """A base URL as an item tells it: a client that holds one need not learn where its upstream is."""
    return xxhash.xxh3_64_digest(url.encode())


def is_sealed(text: object) -> bool:
    """Whether this is, or claims to be, an item of a gateway's."""
    return isinstance(text, str) and text.startswith(PREFIX)


def squeezed(text: str) -> str:
    """Text without its blanks: some clients trim what the model said."""
    return "".join(text.split())


def digest(text: str) -> bytes:
    """What an item says of text, squeezed."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _decoded(text: str) -> bytes:
    """Return the bytes of base64; nothing where it is none, or has another spelling than ours (spare bits, padding, the
    two characters of the usual alphabet, which Python takes beside `altchars`)."""
    if "+" in text or "/" in text:
        return b""
    try:
        raw = b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except ValueError:
        return b""
    last = raw[-(len(raw) % 3 or 3) :]
    return raw if text.endswith(urlsafe_b64encode(last).decode()) else b""


def _bound(owner: str | None) -> bytes:
    return b"\0" if owner is None else b"\1" + owner.encode("utf-8", "surrogatepass")
