"""Sealed reasoning as a client of Gemini's hands it along: the `thoughtSignature` of a part.

A signature is bytes there, which Google's SDKs decode and write anew, in either alphabet of base64. So an item is the
bytes of its text, with the id of the call that it is for between its version and what is sealed:

    base64("arbiter-reasoning.1." | length of the id (2) | id | key id, nonce, secret)

Some clients (the AI SDK's) keep a call's signature and not its id. The id that is told here takes its place; what is
sealed says whether it is the right one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64encode

from arbiter.wire.vault import PREFIX

MARK = b64encode(PREFIX.encode())
"""How each of them begins: the prefix has 18 characters, which end where a group of base64 does."""

_STANDARD = str.maketrans("-_", "+/")
_LENGTH_BYTES = 2


def signature_of(item: str, call_id: str | None) -> str:
    """Return an item of the vault's as the signature of a part: of the call with that id, where there is one."""
    version, _, secret = item.removeprefix(PREFIX).partition(".")
    id = (call_id or "").encode("utf-8", "replace")
    if len(id) >> (8 * _LENGTH_BYTES):
        id = b""
    head = f"{PREFIX}{version}.".encode() + len(id).to_bytes(_LENGTH_BYTES, "big") + id
    return b64encode(head + b64decode(secret, altchars=b"-_")).decode()


def item_of(signature: str) -> tuple[str, str | None] | None:
    """Return the item, and the id of its call; None where the signature is none of this gateway's.

    Shapes: what only begins like one is an item, too, and no vault opens it.
    """
    if not signature.startswith(MARK.decode()):
        return None
    standard = signature.translate(_STANDARD).rstrip("=")
    try:
        raw = b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        return PREFIX, None
    version, _, rest = raw[len(PREFIX) :].partition(b".")
    behind = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
    id = rest[_LENGTH_BYTES:behind].decode("utf-8", "replace")
    item = f"{PREFIX}{version.decode('ascii', 'replace')}.{urlsafe_b64encode(rest[behind:]).decode()}"
    return item, id or None
