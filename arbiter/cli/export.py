"""`arbiter export`: rows for other programs, as Parquet, CSV or JSON lines, straight from the store."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from arbiter import clock
from arbiter.cli import CommandError, UsageError, options
from arbiter.ledger.questions import export
from arbiter.ledger.questions.export import Page, Span
from arbiter.ledger.schema import Column

ROW_GROUP = 20_000  # of a Parquet file: what is held until it is written
TOLD_EVERY_S = 1.0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "export",
        run,
        help="write recorded rows for other programs",
        description="Write the rows of a table, oldest first, with the columns that docs/ledger.md explains. The "
        "gateway need not be running. Parquet needs pyarrow: pip install pyarrow.",
    )
    command.add_argument("--format", choices=tuple(FORMATS), default="jsonl", help="what to write (default: jsonl)")
    command.add_argument(
        "--table", choices=tuple(export.MOMENTS), default="requests", help="of which rows (default: requests)"
    )
    command.add_argument(
        "--output", default="-", metavar="FILE", help="where to, in place of standard output; whole, or not at all"
    )
    options.add_since(command)
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    span = Span(options.since_ms(arguments) or 0, clock.now_ms())
    make = FORMATS[arguments.format]
    table, _ = export.MOMENTS[arguments.table]
    is_file = arguments.output != "-"
    if not is_file and arguments.format == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet is nothing to read on a terminal: name a file with --output")
    writer = make(table.columns)  # before anything is read: what it needs may be missing
    with options.reading(arguments) as store, _output(arguments.output) as out, _Progress() as progress:
        writer.begin(out)
        for page in export.pages(store, table.name, span):
            writer.write(page)
            progress.add(len(page))
        writer.end()
    if is_file:
        print(f"{progress.rows:,} rows of {table.name} are in {arguments.output}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _output(name: str) -> Iterator[IO[bytes]]:
    """Standard output, or a file that is there under its name once it is whole."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    part = path.with_name(f"{path.name}.part")
    try:
        # What was asked is nobody else's to read.
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            yield out
        part.replace(path)
    except OSError as error:
        raise CommandError(f"{name} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


class _Progress:
    """How far it is, once a second, for a person who waits at a terminal."""

    def __init__(self) -> None:
        self.rows = 0
        self._is_told = False
        self._tell_at = clock.monotonic() + TOLD_EVERY_S if sys.stderr.isatty() else None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_told:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def add(self, rows: int) -> None:
        self.rows += rows
        if self._tell_at is not None and clock.monotonic() >= self._tell_at:
            self._tell_at = clock.monotonic() + TOLD_EVERY_S
            self._is_told = True
            print(f"\r{self.rows:,} rows", end="", file=sys.stderr, flush=True)


class Writer(Protocol):
    """One file of rows: `begin`, a `write` for each page, `end`."""

    def begin(self, out: IO[bytes]) -> None: ...

    def write(self, page: Page) -> None: ...

    def end(self) -> None: ...


class _Jsonl:
    """One object a line; lists and maps are lists and maps, what is not known is null."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def begin(self, out: IO[bytes]) -> None:
        self._out = out

    def write(self, page: Page) -> None:
        encode = msgspec.json.Encoder().encode_lines
        names = [column.name for column in self._columns]
        told = [_told(column) for column in self._columns]
        rows = [{n: tell(v) for n, tell, v in zip(names, told, values, strict=True)} for values in page]
        self._out.write(encode(rows))

    def end(self) -> None:
        pass


def _told(column: Column) -> Callable[[Any], Any]:
    """A stored value as JSON has it."""
    if column.kind == "boolean":
        return lambda value: bool(column.default if value is None else value)
    if column.kind == "json":
        return lambda value: None if value is None else msgspec.Raw(value.encode())
    return lambda value: column.default if value is None else value


class _Csv:
    """A head and a line for each row: lists and maps as JSON text, booleans 0 or 1, what is not known is empty."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def begin(self, out: IO[bytes]) -> None:
        self._out = out
        self._write([[column.name for column in self._columns]])

    def write(self, page: Page) -> None:
        defaults = [column.default for column in self._columns]
        self._write(
            [
                [_plain(default if value is None else value) for default, value in zip(defaults, values, strict=True)]
                for values in page
            ]
        )

    def end(self) -> None:
        pass

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._out.write(text.getvalue().encode())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


class _Parquet:
    """Typed columns, compressed: lists and maps are JSON text, what is not known is null."""

    def __init__(self, columns: Sequence[Column]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise CommandError(_without_pyarrow()) from None
        self._arrow = pyarrow
        self._columns = columns
        types = {"integer": pyarrow.int64(), "boolean": pyarrow.bool_()}
        self._schema = pyarrow.schema(
            [(column.name, types.get(column.kind, pyarrow.string())) for column in columns],
            metadata={"arbiter": "columns: docs/ledger.md"},
        )
        self._held: Page = []

    def begin(self, out: IO[bytes]) -> None:
        self._file = self._arrow.parquet.ParquetWriter(out, self._schema, compression="zstd")

    def write(self, page: Page) -> None:
        self._held += page
        if len(self._held) >= ROW_GROUP:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        held, self._held = self._held, []
        arrays = []
        for index, (column, field) in enumerate(zip(self._columns, self._schema, strict=True)):
            values = [column.default if row[index] is None else row[index] for row in held]
            if column.kind == "boolean":
                values = [bool(value) for value in values]
            arrays.append(self._arrow.array(values, type=field.type))
        self._file.write_table(self._arrow.table(arrays, schema=self._schema))


def _without_pyarrow() -> str:
    """How to get it: our image has no pip, and so nothing can be added to it."""
    from importlib.util import find_spec

    if find_spec("pip") is None:
        get = "neither it nor pip is here; export csv or jsonl, or do it from a clone: .venv/bin/pip install pyarrow"
    else:
        get = f"{sys.executable} -m pip install pyarrow"
    return f"Parquet needs pyarrow: {get}"


FORMATS: dict[str, Callable[[Sequence[Column]], Writer]] = {"parquet": _Parquet, "csv": _Csv, "jsonl": _Jsonl}
