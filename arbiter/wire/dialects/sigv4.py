"""AWS Signature Version 4: a request that shows who sent it without showing the key.

What is signed is a canonical text of the request: its method, path, query, some headers and the hash of its body. The
key for it is derived from the secret, the day, the region and the service, and kept until the day is over.

Source: AWS Identity and Access Management, "Create a signed AWS API request".
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from functools import lru_cache
from time import gmtime, strftime

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def quoted(text: str, keep: str = "") -> str:
    """Return `text` percent-encoded but for what RFC 3986 leaves unreserved, and `keep`."""
    kept = _UNRESERVED.union(keep.encode())
    return "".join([chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode()])


def stamp(now_ms: int) -> str:
    """Return wall time as `x-amz-date` has it."""
    return strftime("%Y%m%dT%H%M%SZ", gmtime(now_ms // 1000))


def authorization(
    *,
    access_id: str,
    secret: str,
    region: str,
    service: str,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    date: str,
) -> str:
    """Return the `authorization` of a request.

    Shapes: `target` is the request target as it is sent, path and query percent-encoded; each of `headers` is signed,
    `host` and `x-amz-date` among them; names of theirs may be in any case and come twice. `date` is that `x-amz-date`.
    """
    path, _, query = target.partition("?")
    folded: dict[str, list[str]] = {}
    for name, value in headers:
        folded.setdefault(name.lower(), []).append(" ".join(value.split()))
    names = ";".join(sorted(folded))
    lines = [
        method,
        # Every service but S3 wants the path encoded once more, as it is encoded for the wire.
        quoted(path or "/", "/"),
        "&".join(sorted(query.split("&"))) if query else "",
        *[f"{name}:{','.join(folded[name])}" for name in sorted(folded)],
        "",
        names,
        hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256,
    ]
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"{ALGORITHM}\n{date}\n{scope}\n{digest}"
    signature = hmac.new(_key(secret, date[:8], region, service), text.encode(), hashlib.sha256).hexdigest()
    return f"{ALGORITHM} Credential={access_id}/{scope}, SignedHeaders={names}, Signature={signature}"


@lru_cache(64)
def _key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
