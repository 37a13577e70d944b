"""What stands inside of a request instead of behind an address: `data:` URLs, and base64.

Both come from callers and may be as long as a body is allowed to be, so each step here is one pass in C.
"""

from __future__ import annotations

import base64
import binascii

MAX_HEAD = 1024
"""Characters of a `data:` URL in front of its data. What has no comma by then is an address like any other."""

_BLANKS = b" \t\r\n\v\f"


def data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 of a `data:` URL, None for anything else, broken escapes among it.

    Source: RFC 2397. Parameters of the media type are dropped; data that is not base64 becomes it.
    """
    if url[:5].lower() != "data:":
        return None
    comma = url.find(",", 5, MAX_HEAD)
    if comma < 0:
        return None
    media_type, _, parameters = url[5:comma].partition(";")
    is_base64 = f";{parameters}".lower().replace(" ", "").endswith(";base64")
    data = url[comma + 1 :]
    if is_base64 and "%" not in data:
        return media_type, data
    found = _unescaped(data.encode())
    if found is None:
        return None
    if is_base64:
        return (media_type, found.decode()) if found.isascii() else None
    return media_type or "text/plain", base64.b64encode(found).decode()


def text_in(data: str) -> str | None:
    """Return the text that base64 `data` holds; None where it is none, or no base64."""
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError:  # not base64, not ASCII to begin with, or not UTF-8 once decoded
        return None


def flat(data: str) -> str:
    """Return base64 without the line ends of MIME."""
    return data.encode().translate(None, _BLANKS).decode() if "\n" in data or " " in data or "\r" in data else data


def _unescaped(data: bytes) -> bytes | None:
    """Return `data` with its percent escapes decoded; None where one of them is broken."""
    escapes = data.count(b"%")
    if not escapes:
        return data
    # Quoted-printable is the same escape behind another sign, and of the two the one that is decoded in C.
    found = binascii.a2b_qp(data.replace(b"=", b"=3D").replace(b"%", b"="))
    # A whole escape is two bytes shorter than it was. A broken one is less so, but in front of a line end, where
    # quoted-printable joins lines.
    is_whole = len(found) == len(data) - 2 * escapes and b"%\n" not in data and b"%\r" not in data
    return found if is_whole else None
