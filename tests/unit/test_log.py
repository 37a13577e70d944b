"""Log lines: their members, their one line each, what never appears in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from arbiter import log
from arbiter.log import Blotter


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("arbiter")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_the_trace_id_and_the_fields() -> None:
    stream = io.StringIO()
    log.setup(stream=stream)
    log.Log("arbiter.gateway").info("attempt failed", trace_id="t1", provider="openai", waited_s=1.5)
    (line,) = lines(stream)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "arbiter.gateway",
        "message": "attempt failed",
        "trace_id": "t1",
        "provider": "openai",
        "waited_s": 1.5,
    }


def test_the_standard_librarys_extra_fields_come_out_alike() -> None:
    stream = io.StringIO()
    log.setup(stream=stream)
    logging.getLogger("arbiter.ledger").info("drained %d", 3, extra={"rows": 3, "trace_id": "t2"})
    (line,) = lines(stream)
    assert (line["message"], line["rows"], line["trace_id"]) == ("drained 3", 3, "t2")


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1)])
def test_the_level_decides_what_is_written(level: str, seen: int) -> None:
    stream = io.StringIO()
    log.setup(level, stream=stream)
    ours = log.Log("arbiter.x")
    for write in (ours.debug, ours.info, ours.warn, ours.error):
        write("m")
    assert len(lines(stream)) == seen


def test_a_library_is_heard_from_warning_on() -> None:
    stream = io.StringIO()
    log.setup("debug", stream=stream)
    logging.getLogger("httpcore").info("chatter")
    logging.getLogger("httpcore").warning("trouble")
    assert [line["message"] for line in lines(stream)] == ["trouble"]


def test_a_field_below_the_level_is_never_formatted() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    log.setup("info", stream=io.StringIO())
    log.Log("arbiter.x").debug("m", field=Costly())


def test_an_error_brings_its_traceback_and_a_warning_does_not() -> None:
    stream = io.StringIO()
    log.setup(stream=stream)
    try:
        raise ValueError("broken")
    except ValueError as error:
        log.Log("arbiter.x").warn("w", error=error)
        log.Log("arbiter.x").error("e", error=error)
    warning, failure = lines(stream)
    assert warning["error"] == failure["error"] == "ValueError: broken"
    assert "traceback" not in warning and "test_log.py" in failure["traceback"]


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_known_secret_is_blotted_out_wherever_it_stands(format: str) -> None:
    stream = io.StringIO()
    log.setup(format=format, secrets=["sk-secret", 'sk-"quoted\\', "sk-secret-longer", "abc"], stream=stream)
    try:
        raise ValueError("sk-secret-longer")
    except ValueError as error:
        log.Log("arbiter.x").error('m sk-secret sk-"quoted\\', key="sk-secret", error=error)
    text = stream.getvalue()
    assert "sk-" not in text and "-longer" not in text and "***" in text


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_message_cannot_begin_a_line_of_its_own(format: str) -> None:
    stream = io.StringIO()
    log.setup(format=format, stream=stream)
    log.Log("arbiter.x").info("a\nb\x1b[31m", model="c\r\nd\u2028e")
    assert len(stream.getvalue().splitlines()) == 1 and "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_value_that_cannot_be_written_costs_its_line_and_nothing_else(format: str) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    stream = io.StringIO()
    log.setup(format=format, stream=stream)
    log.Log("arbiter.x").info("m", field=Hostile(), surrogate="\ud800")
    assert "could not be written" in stream.getvalue()


def test_text_is_for_people() -> None:
    stream = io.StringIO()
    log.setup(format="text", stream=stream)
    log.Log("arbiter.gateway").warn("slow", trace_id="t1", provider="up", note="two words")
    assert stream.getvalue()[13:] == 'WARN  gateway: slow trace_id=t1 provider=up note="two words"\n'


def test_setting_up_again_replaces_what_was() -> None:
    first, second = io.StringIO(), io.StringIO()
    log.setup(stream=first)
    log.setup(stream=second)
    log.Log("arbiter.x").info("m")
    assert first.getvalue() == "" and len(lines(second)) == 1


def test_a_closed_stream_is_nobodys_exception() -> None:
    stream = io.StringIO()
    log.setup(stream=stream)
    stream.close()
    log.Log("arbiter.x").info("m")


def test_a_secret_is_found_in_a_text_that_is_no_longer_than_it() -> None:
    """What is shorter than every secret is not looked through; what is as long as the shortest is."""
    blot = Blotter(["a-much-longer-secret", "secret"])
    assert [blot(text) for text in ("secret", "secre", "a-much-longer-secret", "")] == ["***", "secre", "***", ""]
    assert blot.also(["other-one"])("other-one") == "***"
    blot.learn(["sixsix"])
    assert blot("sixsix") == "***"


def test_headers_are_handed_on_as_they_came_unless_one_holds_a_secret() -> None:
    blot = Blotter(["a-much-longer-secret", "secret"])
    clean = [("x-a", "secre"), ("x-b", "t"), ("x-c", "long enough to be looked through")]
    assert blot.pairs(clean) is clean
    assert blot.pairs([*clean, ("x-d", "secret")]) == [*clean, ("x-d", "***")]
    assert blot.pairs([("x-a", "no secret, and a-much-longer-secret")]) == [("x-a", "no ***, and ***")]


def test_who_knows_no_secrets_changes_nothing() -> None:
    pairs = [("x-a", "value")]
    blot = Blotter()
    assert blot.pairs(pairs) is pairs and blot("text") == "text" and blot.raw(b"text") == b"text"
