"""From what an agent needs, and what was done before, to what becomes of each file; and from there to the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arbiter.cli import CommandError
from arbiter.cli.connecting import records
from arbiter.cli.connecting.agents import Settings
from arbiter.cli.connecting.documents import FORMATS, Edit, edited, is_empty, reverted
from arbiter.cli.connecting.records import Choices, Record, Written
from arbiter.cli.connecting.tree import MISSING, Broken, Named, Place, lookup

_NAMES = {"json": "JSON", "toml": "TOML", "yaml": "YAML", "env": "a list of variables", "word": "one word"}


@dataclass(frozen=True, slots=True)
class Change:
    """A file, what it holds now and what then; None is no file. `before` is what it would hold without us.

    `kept` are the places that somebody else changed since, and that an undo therefore leaves alone.
    """

    path: Path
    kind: str
    now: str | None
    then: str | None
    before: str | None = None
    edits: list[Edit] = field(default_factory=list)
    kept: list[Place] = field(default_factory=list)

    @property
    def is_one(self) -> bool:
        return self.then != self.now

    @property
    def taken_out(self) -> list[str]:
        """What stood in the file and may not any more."""
        tree = FORMATS[self.kind].parse(self.before or "")
        return [
            spelled(place) for place, value in self.edits if value is MISSING and lookup(tree, place) is not MISSING
        ]


def connecting(settings: Settings, record: Record, folder: Path) -> Change:
    """What to write into one file, also where it was changed before, by us or by others. Errors: CommandError."""
    path = Path(os.path.realpath(settings.path))  # a link stays one
    kind, now, written = settings.kind, records.read_text(path), record.of(path)
    with _telling(path, kind):
        before = now
        if written is not None and now is not None:
            before, _ = _without_us(written, now, folder)
        tree = FORMATS[kind].parse(before or "")
        edits = [edit for edit in settings.defaults if lookup(tree, edit[0]) is MISSING]
        edits += settings.edits
        if now is not None and edited(kind, now, edits) == now and _was_all(written, edits):
            return Change(path, kind, now, now, before, edits)
        return Change(path, kind, now, edited(kind, before or "", edits), before, edits)


def undoing(written: Written, folder: Path) -> Change:
    """What it was, with what others did to it meanwhile. Errors: CommandError."""
    path = Path(written.path)
    now = records.read_text(path)
    if now is None:
        return Change(path, written.kind, now, _original(written, folder))
    with _telling(path, written.kind):
        then, kept = _without_us(written, now, folder)
    return Change(path, written.kind, now, then, kept=kept)


def write(changes: Sequence[Change], choices: Choices, record: Record, folder: Path) -> None:
    """Write down what will be done, and do it. Errors: CommandError."""
    files = {one.path: one for one in record.files}
    folders = list(record.folders)
    for change in changes:
        if change.is_one:
            folders += [name for name in records.missing_folders(change.path) if name not in folders]
            files[str(change.path)] = _written(change, files.get(str(change.path)), folder)
    records.write(folder, Record(choices=choices, files=list(files.values()), folders=folders))
    for change in changes:
        if change.is_one:
            _put(change, records.mode(change.path))


def undo(changes: Sequence[tuple[Written, Change]], record: Record, folder: Path) -> None:
    """Put back what was, and forget that; what is not among the changes stays known. Errors: CommandError."""
    for written, change in changes:
        if change.is_one:
            _put(change, records.mode(change.path) if change.now is not None else written.mode)
    left = [one for one in record.files if all(one is not written for written, _ in changes)]
    for name in reversed(record.folders):
        with contextlib.suppress(OSError):
            os.rmdir(name)  # where somebody else keeps something in it, it stays
    if left:
        records.write(folder, Record(choices=record.choices, files=left, folders=record.folders))
    else:
        records.forget(folder)


def spelled(place: Place) -> str:
    """A place as people write it."""
    return ".".join(step.value if isinstance(step, Named) else step for step in place)


# ------------------------------------------------------------------------------------------------------------- inside


def _without_us(written: Written, now: str, folder: Path) -> tuple[str | None, list[Place]]:
    original = _original(written, folder)
    if records.digest(now) == written.digest or now == original:
        return original, []
    text, kept = reverted(written.kind, now, original or "", records.loaded(written))
    return (None if original is None and is_empty(written.kind, text) else text), kept


def _original(written: Written, folder: Path) -> str | None:
    if written.backup is None:
        return None
    text = records.read_text(folder / written.backup)
    if text is None:
        raise CommandError(f"{folder / written.backup}, the copy of {written.path} as it was, is gone")
    return text


def _was_all(written: Written | None, edits: list[Edit]) -> bool:
    """Whether what was written is still what is wanted, no more and in this order."""
    return written is None or written.edits == records.stored(edits)


def _written(change: Change, last: Written | None, folder: Path) -> Written:
    assert change.then is not None
    backup = None
    if change.before is not None:
        is_kept = last is not None and last.backup and records.read_text(folder / last.backup) == change.before
        backup = last.backup if last and is_kept else records.backup(folder, change.path, change.before)
    return Written(
        path=str(change.path),
        kind=change.kind,
        backup=backup,
        mode=records.mode(change.path),
        digest=records.digest(change.then),
        edits=records.stored(change.edits),
    )


def _put(change: Change, mode: int) -> None:
    if change.then is not None:
        records.make_folders(change.path)
        records.write_text(change.path, change.then, mode)
        return
    try:
        change.path.unlink()
    except OSError as error:
        raise CommandError(f"{change.path} cannot be removed: {error.strerror}") from None


@contextlib.contextmanager
def _telling(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except Broken as error:
        raise CommandError(f"{path} is not {_NAMES[kind]} as it should be, and is left alone: {error}") from None
