"""What was done to an agent's settings, so that it can be repeated and taken back.

`~/.local/state/arbiter/connect/AGENT/` (XDG_STATE_HOME) holds `record.json` and a copy of each file as it was before.
It is its owner's alone: settings hold keys. The record is written before a file is changed, so that whatever ends us
in between, `--undo` still knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from arbiter.cli import CommandError
from arbiter.cli.connecting.documents import Edit
from arbiter.cli.connecting.tree import MISSING, Named, Place

MAX_BYTES = 16 << 20
RECORD = "record.json"


class Choices(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the command line said; None where it said nothing."""

    url: str | None = None
    key: str | None = None
    model: str | None = None
    format: str | None = None
    pins: bool = False


class Written(msgspec.Struct, kw_only=True):
    """A changed file. `backup` names the copy of what it was, None where there was no file; `digest` is of what it
    became. An edit is its place and its value; one of nothing but the place says that nothing may stand there."""

    path: str
    kind: str
    backup: str | None
    mode: int
    digest: str
    edits: list[list[object]]


class Record(msgspec.Struct, kw_only=True):
    """`folders` were made for the files, outermost first."""

    choices: Choices
    files: list[Written]
    folders: list[str]

    def of(self, path: Path) -> Written | None:
        """What was done to the file."""
        return next((one for one in self.files if one.path == str(path)), None)


def read(folder: Path) -> Record:
    """What was done so far; an empty record where nothing was. Errors: CommandError."""
    text = read_text(folder / RECORD)
    if text is None:
        return Record(choices=Choices(), files=[], folders=[])
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        raise CommandError(f"{folder / RECORD} cannot be understood: {error}") from None


def write(folder: Path, record: Record) -> None:
    write_text(folder / RECORD, json.dumps(msgspec.to_builtins(record), indent=1) + "\n", 0o600)


def backup(folder: Path, path: Path, text: str) -> str:
    """Keep `text`, which is what the file was; the copy's name."""
    number = 1
    while (folder / f"{number}-{path.name}").exists():
        number += 1
    name = f"{number}-{path.name}"
    write_text(folder / name, text, 0o600)
    return name


def forget(folder: Path) -> None:
    """Remove the record and the copies."""
    shutil.rmtree(folder)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else connects an agent, or takes that back, within. Errors: CommandError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)  # held by its handle, nothing is left behind
    except OSError as error:
        raise CommandError(f"{folder} cannot be made: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(mode=0o700, exist_ok=True)  # whoever held it may have removed it
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # of an agent that is not connected nothing is kept
        os.close(lock)


# ------------------------------------------------------------------------------------------------------------- edits


def stored(edits: list[Edit]) -> list[list[object]]:
    """Edits as JSON holds them."""
    return [[list(place)] if value is MISSING else [list(place), value] for place, value in edits]


def loaded(written: Written) -> list[Edit]:
    """The edits of a file."""
    edits: list[Edit] = []
    for place, *value in written.edits:
        assert isinstance(place, list)
        steps: Place = tuple(step if isinstance(step, str) else Named(*step) for step in place)
        edits.append((steps, value[0] if value else MISSING))
    return edits


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------------- files


def read_text(path: Path) -> str | None:
    """What the file holds, line ends as they are; None where there is none. Errors: CommandError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would keep us waiting
            raise CommandError(f"{path} is no file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(raw) > MAX_BYTES:
        raise CommandError(f"{path} is over 16 MiB; these are no settings")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not UTF-8; it is left alone") from None


def mode(path: Path) -> int:
    """The file's permissions; those that a new one gets where there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600


def write_text(path: Path, text: str, mode: int) -> None:
    """Put a whole new file in the place of the old one. `path` is no symbolic link. Errors: CommandError."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                _keep_owner(path, file.fileno())
                os.fchmod(file.fileno(), mode)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from None


def missing_folders(path: Path) -> list[str]:
    """The folders above the file that there are not, outermost first."""
    missing: list[str] = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.insert(0, str(folder))
    return missing


def make_folders(path: Path) -> None:
    """Make the folders above the file. Errors: CommandError."""
    try:
        for name in missing_folders(path):
            os.mkdir(name, 0o700)
    except OSError as error:
        raise CommandError(f"{path.parent} cannot be made: {error.strerror}") from None


def _keep_owner(path: Path, handle: int) -> None:
    """Another user's file stays theirs, where we are root."""
    with contextlib.suppress(OSError):
        was = path.stat()
        if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(handle, was.st_uid, was.st_gid)
