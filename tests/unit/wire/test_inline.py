"""Data inside of requests: what callers may write, however long and however broken it is."""

from __future__ import annotations

import base64
from urllib.parse import quote_from_bytes, unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arbiter.errors import ProtocolUnsupported
from arbiter.model import File
from arbiter.wire.inline import MAX_HEAD, data_url, flat, text_in
from arbiter.wire.messages_blocks import block_of

LONG = 10_000_000  # what takes a step per character, let alone per pair of them, would hang the suite


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA")),
        ("DATA:image/png;charset=x;BASE64,AAAA", ("image/png", "AAAA")),
        ("data:image/png; base64,AAAA", ("image/png", "AAAA")),
        ("data:image/png;base64,iVBORw0KGgo%3D", ("image/png", "iVBORw0KGgo=")),
        ("data:image/png;base64,ab%2Bc%2fd%3d%3D", ("image/png", "ab+c/d==")),
        ("data:;base64,aGk=", ("", "aGk=")),
        ("data:,hi", ("text/plain", "aGk=")),
        ("data:text/plain,h%69", ("text/plain", "aGk=")),
        ("data:text/plain;x=base64,hi", ("text/plain", "aGk=")),
        ("data:", None),
        ("data:image/png;base64", None),
        ("https://a.example/data:,", None),
        ("data:;base64,%C3%A9", None),
        ("data:text/plain,100%", None),
    ],
)
def test_data_urls_are_read_as_browsers_do(url: str, expected: tuple[str, str] | None) -> None:
    """Also where base64 is escaped, as whoever builds a URL by the book does it."""
    assert data_url(url) == expected


@given(st.binary())
@example(b"=41%41=\r\n= _")
def test_escaped_bytes_come_back(data: bytes) -> None:
    assert data_url(f"data:a/b,{quote_from_bytes(data, safe='')}") == ("a/b", base64.b64encode(data).decode())


@given(st.lists(st.sampled_from(["%", "%4", "41", "%41", "%zz", "=", "=41", "\n", "\r", "a", "é", ","])).map("".join))
def test_broken_escapes_are_never_decoded_to_something_else(data: str) -> None:
    """They are told by their length alone, so nothing may make up for it."""
    found = data_url(f"data:a/b,{data}")
    whole = all(len(rest) > 1 and not set(rest[:2]) - set("0123456789abcdefABCDEF") for rest in data.split("%")[1:])
    assert found == (("a/b", base64.b64encode(unquote_to_bytes(data)).decode()) if whole else None)


def test_a_data_url_without_its_comma_is_an_address() -> None:
    """The comma is looked for in the first kilobyte, and nothing is looked at twice."""
    assert data_url("data:" + "a" * LONG) is None
    assert data_url("data:" + ";" * LONG + ",") is None
    assert data_url("data:" + "a" * (MAX_HEAD - 6) + ",") is not None


def test_long_data_is_read_in_one_go() -> None:
    found = data_url("data:image/png," + "%41" * LONG)
    assert found is not None and len(found[1]) == (LONG + 2) // 3 * 4
    assert data_url("data:image/png," + "%" * LONG) is None
    assert flat("A\n" * LONG) == "A" * LONG


@pytest.mark.parametrize("data", ["é", "YQ", "YQ==é", "/w==", "\ud7ff", "a b="])
def test_what_is_no_text_in_base64_is_none(data: str) -> None:
    assert text_in(data) is None


@pytest.mark.parametrize("media_type", [None, "text/plain", "application/json"])
def test_a_document_of_no_base64_is_refused(media_type: str | None) -> None:
    """Whatever characters it is made of: the caller's mistake, and not ours."""
    with pytest.raises(ProtocolUnsupported, match="must be PDF or text"):
        block_of(File(media_type=media_type, data="é"))
