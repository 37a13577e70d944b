"""Log lines: one JSON object each, or text for people, on standard error.

    log = Log(__name__)
    log.info("attempt failed", trace_id=call.trace_id, provider="openai", waited_s=1.5)

A line below the level costs one comparison. Lines of the standard library's `logging` come out alike: what they give as
`extra` are their fields. Fields are what the caller hands over, so what must not be seen is not
handed over; as a second fence, the secrets given to `setup` are blotted out of every line. `setup` is called once in
every process, before that lines of level warning and above go out as text.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TextIO

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "fields", "trace_id"}
_SHORTEST_SECRET = 6  # blotting out shorter ones would garble every line and still give them away
_MOST_LATE = 64  # of secrets that were learned in passing: tokens live for hours
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Log:
    """Lines of one module. An exception given as `error` adds its type and text, and to an error its traceback."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def tells_all(self) -> bool:
        """Are debug lines written? For who would gather much for one."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, message: str, *, trace_id: str | None = None, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, message, trace_id, fields)

    def info(self, message: str, *, trace_id: str | None = None, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._write(logging.INFO, message, trace_id, fields)

    def warn(
        self, message: str, *, trace_id: str | None = None, error: BaseException | None = None, **fields: object
    ) -> None:
        if self._logger.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, message, trace_id, fields, error)

    def error(
        self, message: str, *, trace_id: str | None = None, error: BaseException | None = None, **fields: object
    ) -> None:
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, message, trace_id, fields, error)

    def _write(
        self,
        level: int,
        message: str,
        trace_id: str | None,
        fields: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        exc_info = (type(error), error, error.__traceback__) if error is not None else None
        record = self._logger.makeRecord(self._logger.name, level, "", 0, message, (), exc_info)
        record.trace_id, record.fields = trace_id, fields
        self._logger.handle(record)


class Blotter:
    """Keeps secrets out of texts: each one that it knows becomes `***`, plain or as JSON writes it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secrets)
        self._late: list[str] = []
        self._prepare()

    def _prepare(self) -> None:
        known = {secret for secret in self._secrets.union(self._late) if len(secret) >= _SHORTEST_SECRET}
        known |= {json.dumps(secret)[1:-1] for secret in known}
        # Longest first: one secret may be the beginning of another.
        words = sorted(known, key=len, reverse=True)
        self._words = re.compile("|".join(map(re.escape, words)))
        self._shortest = len(words[-1]) if words else sys.maxsize
        self._bytes = re.compile(b"|".join(re.escape(word.encode()) for word in words)) if words else None

    def also(self, secrets: Iterable[str]) -> Blotter:
        """One that knows these secrets besides."""
        return Blotter(self._secrets.union(secrets, self._late))

    def learn(self, secrets: Iterable[str]) -> None:
        """Know these secrets from now on, and of those that were learned before the latest."""
        fresh = [secret for secret in secrets if secret not in self._late]
        if fresh:
            self._late = [*self._late, *fresh][-_MOST_LATE:]
            self._prepare()

    def __call__(self, text: str) -> str:
        # Nearly always there is none: most are too short, and of the others a search tells in a third of the time.
        if len(text) < self._shortest or self._words.search(text) is None:
            return text
        return self._words.sub("***", text)

    def raw(self, data: bytes) -> bytes:
        return self._bytes.sub(b"***", data) if self._bytes else data

    def pairs(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Headers; where none holds a secret, as nearly always, the very list that came."""
        shortest = self._shortest
        long = [value for _, value in pairs if len(value) >= shortest]
        if long and self._words.search("\n".join(long)) is not None:
            return [(name, self(value)) for name, value in pairs]
        return pairs


class _Lines(logging.Formatter):
    """What both spellings share: the fields of a line in order, and the fence against secrets."""

    def __init__(self, secrets: Iterable[str], traceback: bool) -> None:
        super().__init__()
        self._blot = Blotter(secrets)
        self._traceback = traceback

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = self.line(self.members(record))
        except Exception as error:  # a log line must never be what breaks a request; foreign __str__ may do anything
            line = self.line(
                {"level": "error", "message": "a log line could not be written", "error": type(error).__name__}
            )
        return self._blot(line)

    def members(self, record: logging.LogRecord) -> dict[str, object]:
        at = datetime.fromtimestamp(record.created, UTC)
        members: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _NAMES.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace_id := getattr(record, "trace_id", None):
            members["trace_id"] = trace_id
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        for name, value in {**getattr(record, "fields", {}), **extra}.items():
            members.setdefault(name, value)
        if record.exc_info and record.exc_info[1] is not None:
            members["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            # A warning knows what happened; an error is a bug, and so is what a library logs with an exception.
            if self._traceback or record.levelno >= logging.ERROR or not hasattr(record, "fields"):
                members["traceback"] = self.formatException(record.exc_info)
        return members

    def line(self, members: Mapping[str, object]) -> str:
        raise NotImplementedError


class JsonLines(_Lines):
    def line(self, members: Mapping[str, object]) -> str:
        return json.dumps(members, default=str, separators=(",", ":"))


class TextLines(_Lines):
    def line(self, members: Mapping[str, object]) -> str:
        rest = dict(members)
        level, message = str(rest.pop("level", "")), str(rest.pop("message", ""))
        at, name = str(rest.pop("ts", "")), str(rest.pop("logger", ""))
        traceback = str(rest.pop("traceback", ""))
        told = "".join(f" {key}={_quoted(value)}" for key, value in rest.items())
        line = f"{at[11:23]} {level.upper():5} {name.removeprefix('arbiter.')}: {_escaped(message)}{told}"
        # One line per record, whoever chose the text; only a traceback may take more.
        return f"{line}\n{traceback}" if traceback else line


def _escaped(text: str) -> str:
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _quoted(value: object) -> str:
    text = _escaped(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or not text else text


def setup(
    level: str = "info", format: str = "json", *, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Send this process's lines, and those of its libraries from warning on, to `stream` (standard error).

    Calling it again (a reload) replaces what it set up before. `level` is one of `LEVELS`, `format` "json" or "text".
    """
    lines = TextLines if format == "text" else JsonLines
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(lines(secrets, traceback=level == "debug"))
    root = logging.getLogger()
    root.handlers = [old for old in root.handlers if not isinstance(old, _Handler)] + [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger("arbiter").setLevel(LEVELS[level])


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be found again. Where the lines cannot be written there is nobody to tell."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
