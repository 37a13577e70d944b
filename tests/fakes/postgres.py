"""A PostgreSQL server of our own, from the programs that Debian installs, on a free port of the loopback address.

It does not wait for the disk (fsync is off): what it wrote outlives its processes, and nothing here cuts the power.

with Postgres() as server:
    url = server.database()          # an empty database: postgresql://arbiter:...@127.0.0.1:PORT/NAME
    server.take_back(url)            # emptied, for whoever asks next: quicker than another one
    server.freeze(); server.thaw()   # every process of it stands still, and goes on
    server.crash(); server.start()   # as `pg_ctl stop -m immediate` ends it; rows that were committed are there
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from glob import glob
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from .gateway import free_port, until

PASSWORD = "pässword/of:the@tests"
"""Of everybody there. As a URL spells it, it is another word."""
PASSWORD_IN_URL = "p%C3%A4ssword%2Fof%3Athe%40tests"

_numbers = itertools.count(1)


def program(name: str) -> str:
    """One of the server's programs; Debian keeps them out of the PATH."""
    found = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: float(path.split("/")[4]))
    return found[-1] if found else shutil.which(name) or name


def _owner() -> str | None:
    """Whom the server runs as: it refuses root."""
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Postgres:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.port = free_port()
        self.place = Path(tempfile.mkdtemp(prefix="arbiter-pg-", dir="/tmp"))
        self.process: subprocess.Popen[bytes] | None = None
        self._free: list[str] = []  # URLs of empty databases
        self._data = self.place / "data"
        self._owner = _owner()
        secret = self.place / "password"
        secret.write_text(PASSWORD, "utf-8")
        if self._owner is not None:
            for path in (self.place, secret):
                shutil.chown(path, self._owner)
        auth = ["--auth=scram-sha-256", "--username=arbiter", f"--pwfile={secret}"]
        where = ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", f"--pgdata={self._data}"]
        self._run([program("initdb"), *auth, *where])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        self.crash()
        shutil.rmtree(self.place, ignore_errors=True)

    def start(self) -> None:
        """Start it (again), and return once it answers."""
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.place / "log").open("ab") as out:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", str(self._data), *arguments],
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                **self._as_owner(),
            )
        until(self._answers, "a PostgreSQL server", 30)

    def crash(self) -> None:
        """End it at once: no checkpoint, every connection cut."""
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)  # what pg_ctl's "immediate" is
        self.process.wait(30)

    def freeze(self) -> None:
        """Let every process of it stand still. Connections stay, and nobody answers."""
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """After `freeze`."""
        for pid in reversed(self._processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def database(self, options: str = "") -> str:
        """The URL of an empty database; `options` are CREATE DATABASE's."""
        if not options and self._free:
            return self._free.pop()
        name = f"test_{next(_numbers)}"
        self.run("postgres", f"CREATE DATABASE {name} TEMPLATE template0 {options}")
        return self.url(name)

    def take_back(self, url: str) -> None:
        """A database that was made without options is needed no longer: whoever is still connected is cut off."""
        name = url.rpartition("/")[2]
        self.run("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        self.run(name, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self._free.append(url)

    def drop(self, url: str) -> None:
        """A database is needed no longer, nor what it was made with."""
        self.run("postgres", f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def give(self, path: Path) -> None:
        """Let the server have a folder."""
        if self._owner is not None:
            shutil.chown(path, self._owner)

    def url(self, name: str) -> str:
        return f"postgresql://arbiter:{PASSWORD_IN_URL}@127.0.0.1:{self.port}/{name}"

    def run(self, database: str, statement: str) -> list[Any]:
        """One statement as somebody else; its rows, if it has any."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # ------------------------------------------------------------------ inside

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.place / "log").read_text("utf-8")
        try:
            self.run("postgres", "SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _processes(self) -> list[int]:
        """Its processes, the first one first: stopped in that order, it makes no new ones meanwhile."""
        assert self.process is not None
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return []
        return [pid, *map(int, children)]

    def _as_owner(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner, "group": pwd.getpwnam(self._owner).pw_gid, "extra_groups": []}

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.place, capture_output=True, text=True, **self._as_owner())
        assert done.returncode == 0, done.stdout + done.stderr
