"""A whole gateway, `arbiter serve` with its workers and its control process, as tests start and look at one.

    with Gateway({"providers": {...}}, tmp_path) as gateway:      # started, ready; stopped at the end
        answer = await ask(gateway.port, "/v1/chat/completions", {...})      # tests.fakes.client
        row = gateway.row(answer.trace_id)                        # its request row, once it is settled

Defaults: one worker, a free port, rows and state below the folder, log lines of every level. Upstreams that a test
runs itself listen on ports chosen beforehand: `free_port()`, then `Origin(port=...)`.

Who it is: `pid` (the supervisor), `workers`, `control`. How it is: `rss(pid)`, `fds(pid)`, `sockets(pid)`,
`in_flight()`; `get(path)` asks it something. What it wrote down: `requests()`, `attempts(id)`, `row(trace_id)`, `log`,
`lines()`.

`stop()` fails on any line of level "error": those are the gateway's own faults, and a test that causes one on purpose
names a part of it in `expected_errors`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import psycopg.rows
import yaml

ROOT = Path(__file__).parent.parent.parent
ARBITER = [sys.executable, "-c", "import sys; from arbiter.cli import main; sys.exit(main())"]
ADMIN_TOKEN = "admin-token-of-the-tests"

STARTS_S = 60.0
STOPS_S = 60.0
BOUND_S = 45.0
"""How long `until` waits for what must happen soon; only a failing test waits that long, and no machine is too slow."""

ADMIN = {"authorization": f"Bearer {ADMIN_TOKEN}"}

Row = dict[str, Any]


@dataclass
class Reply:
    """What `get` got. Names of headers are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    """To a port, or to a unix socket."""

    def __init__(self, host: str, port: int, path: str | None, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def free_port() -> int:
    """A port that nobody listens on, outside of the range that outgoing connections are given."""
    for _ in range(1000):
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def until(condition: Callable[[], Any], what: str = "the condition", bound_s: float = BOUND_S) -> Any:
    """Poll until `condition` returns something true, and return that."""
    end = time.monotonic() + bound_s
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come true within {bound_s:.0f} s"
        time.sleep(0.01)
    return found


class Gateway:
    """See the module's docstring. `config` is an `arbiter.yaml` as a mapping; sections given there win."""

    def __init__(
        self,
        config: dict[str, Any],
        folder: Path,
        *,
        workers: int = 1,
        env: dict[str, str] | None = None,
        expected_errors: Iterable[str] = (),
        preexec: Callable[[], None] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        url = str(config.get("storage", {}).get("url", ""))
        is_file = url.startswith("sqlite:///")
        self.database = Path(url.removeprefix("sqlite:///")) if is_file else self.data / "arbiter.db"
        self.host, self.port = "127.0.0.1", free_port()
        self.url = f"http://{self.host}:{self.port}"
        self.socket: str | None = config.get("server", {}).get("socket")
        self.expected_errors = list(expected_errors)
        self.process: subprocess.Popen[bytes] | None = None
        self._launched_at_bytes = 0  # of the log
        self.is_administered = False  # has control answered since the last launch?
        self.arguments: list[str] = []  # of the command line, beside --config
        self._preexec = preexec
        defaults: dict[str, Any] = {
            "server": {},
            "storage": {"url": f"sqlite:///{self.database}"},
            "state": f"lmdb://{self.data / 'state'}",
            "admin": {"token": ADMIN_TOKEN},
            "telemetry": {"log": {"level": "debug"}},
        }
        self.config = {**defaults, **config}
        self.config["server"] = {"port": self.port, "workers": workers, "drain": "5s", **self.config["server"]}
        self._file = folder / "arbiter.yaml"
        self._log = folder / "gateway.log"
        self.env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ARBITER_DATA_DIR": str(self.data)}
        self.env |= {name: os.environ[name] for name in ("ARBITER_PURE", "HOME", "LANG") if name in os.environ}
        self.env |= env or {}

    # --- life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(check=error is None)

    def start(self) -> None:
        """Start it (again, on the same data and port), and return once it is ready, and all of its processes listen."""
        self.launch()
        assert self.process is not None
        try:
            self.until_ready()
            # Ready is who answers: the others may be a moment behind.
            count = self.config["server"]["workers"]
            until(lambda: self.control is not None and len(self.workers) >= count, "all processes", STARTS_S)
        except BaseException:
            self.process.kill()
            self.process.wait(10)
            raise

    def refuses(self, bound_s: float = STARTS_S) -> str:
        """Start one that cannot start: it ends by itself, with code 1. Returns what it said."""
        self.launch()
        assert self.process is not None
        try:
            self.process.wait(bound_s)
        finally:
            self.process.kill()
            self.process.wait(10)
        said = self.log_since_launch()
        assert self.process.returncode == 1, said
        return said

    def launch(self) -> None:
        """Start it and do not wait."""
        self.is_administered = False
        self._file.write_text(yaml.safe_dump(self.config, sort_keys=False), "utf-8")
        with self._log.open("ab") as out:
            self._launched_at_bytes = out.tell()
            self.process = subprocess.Popen(
                [*ARBITER, "serve", "--config", str(self._file), *self.arguments],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=self._preexec,
            )

    def until_ready(self) -> None:
        """Wait until `/health/ready` says 200."""
        assert self.process is not None
        end = time.monotonic() + STARTS_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.get("/health/ready", timeout_s=1).status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        raise AssertionError(f"the gateway did not become ready:\n{self.log[-4000:]}")

    def stop(self, *, check: bool = True) -> int:
        """SIGTERM, and wait; with `check`, fail on the gateway's own faults. Returns the exit code."""
        process = self.process
        assert process is not None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOPS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
                raise AssertionError(f"the gateway did not stop:\n{self.log[-4000:]}") from None
        if check:
            self.check()
        return process.returncode

    def kill(self) -> None:
        """SIGKILL to the supervisor, and wait for it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def check(self) -> None:
        """Fail on lines of level "error" that nobody expected."""
        faults = [line for line in self.lines() if line.get("level") == "error"]
        faults = [line for line in faults if not any(part in json.dumps(line) for part in self.expected_errors)]
        told = "\n".join(line.get("traceback", "") or json.dumps(line) for line in faults[:3])
        assert not faults, f"{len(faults)} faults of the gateway's own:\n{told}"
        assert "Traceback (most recent call last)" not in "".join(self.stray_lines()), self.log[-4000:]

    # --- its processes --------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The supervisor's."""
        assert self.process is not None
        return self.process.pid

    @property
    def children(self) -> list[int]:
        """Living children of the supervisor, oldest first."""
        try:
            listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return []
        return sorted(pid for pid in map(int, listed) if not is_dead(pid))

    @property
    def control(self) -> int | None:
        """The control process, which is the one that listens on the control socket; None while there is none."""
        listening = set()
        for line in Path("/proc/net/unix").read_text().splitlines():
            fields = line.split()
            if fields[-1].endswith("/control.sock") and fields[3] == "00010000":
                listening.add(fields[6])
        return next((pid for pid in self.children if listening & socket_inodes(pid)), None)

    @property
    def workers(self) -> list[int]:
        """The worker processes: children that listen on the port, control apart."""
        wanted = f":{self.port:04X}"
        listening = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                listening.add(fields[9])
        for line in Path("/proc/net/unix").read_text().splitlines():
            if self.socket is not None and line.endswith(f" {self.socket}"):
                listening.add(line.split()[6])
        control = self.control
        return [pid for pid in self.children if pid != control and listening & socket_inodes(pid)]

    @property
    def worker(self) -> int:
        """The only worker."""
        (pid,) = until(lambda: len(found := self.workers) == 1 and found, "one worker")
        return int(pid)

    def get(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30,
    ) -> Reply:
        """One request on a connection of its own, from this thread; for what is no model call.

        A gateway is ready as soon as its workers serve: the first to ask its administration waits until that is up too.
        """
        end = time.monotonic() + STARTS_S
        while True:
            reply = self._ask(method, path, headers or {}, body, timeout_s)
            is_starting = path.startswith("/admin/") and b"the administration is starting" in reply.body
            if self.is_administered or not is_starting or time.monotonic() > end:
                self.is_administered |= path.startswith("/admin/") and reply.status < 400
                return reply
            time.sleep(0.05)

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout_s: float) -> Reply:
        with closing(_Connection(self.host, self.port, self.socket, timeout_s)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def in_flight(self) -> int:
        """Requests not yet settled, all workers added up."""
        return int(self.metric("arbiter_requests_in_flight"))

    def metric(self, name: str) -> float:
        """The sum of a metric over its label sets, read without a request of its own being counted."""
        text = self.get("/metrics", headers=ADMIN).body.decode()
        found = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return sum(float(value) for key, _, value in found if key.partition("{")[0] == name)

    # --- what it wrote down ---------------------------------------------------------------------------------------

    def requests(self) -> list[Row]:
        """Every request row in the store, oldest first."""
        return self.select("SELECT * FROM requests ORDER BY received_ms, id")

    def attempts(self, request_id: str | None = None) -> list[Row]:
        """Every attempt row, or those of one request, in order."""
        if request_id is None:
            return self.select("SELECT * FROM attempts ORDER BY started_ms, id")
        return self.select("SELECT * FROM attempts WHERE request_id = ? ORDER BY number", request_id)

    def row(self, trace_id: str | None) -> Row:
        """The one request row of `trace_id`, waiting until it is stored; `attempts` are the rows of its attempts."""
        assert trace_id, "the answer named no trace id"

        def found() -> list[Row]:
            return self.select("SELECT * FROM requests WHERE trace_id = ?", trace_id)

        (row,) = until(found, f"the row of {trace_id}")
        attempts = self.attempts(row["id"])
        assert len(attempts) == row["attempts"], "the row counts other attempts than are stored"
        return {**row, "attempts": attempts}

    def until_settled(self, count: int) -> list[Row]:
        """Wait until `count` requests are stored, and return them."""
        return list(until(lambda: len(rows := self.requests()) >= count and rows, f"{count} rows", 30))

    def select(self, statement: str, *values: Any) -> list[Row]:
        """Rows of the store, JSON columns as text; none while there is no store yet."""
        url = str(self.config["storage"].get("url", ""))
        if url.startswith("postgresql://"):
            return _select(url, statement, values)
        try:
            with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)) as connection:
                connection.row_factory = sqlite3.Row
                return [dict(row) for row in connection.execute(statement, values)]
        except sqlite3.OperationalError as error:
            if "unable to open" in str(error) or "no such table" in str(error):
                return []
            raise

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def log_since_launch(self) -> str:
        return self._log.read_bytes()[self._launched_at_bytes :].decode("utf-8", "replace")

    def lines(self, *, launched: bool = False) -> list[dict[str, Any]]:
        """The log's JSON lines; with `launched`, only those since the last start."""
        log = self.log_since_launch() if launched else self.log
        return [json.loads(line) for line in log.splitlines() if line.startswith("{") and line.endswith("}")]

    def stray_lines(self) -> list[str]:
        """Whatever is in the log and is no JSON line."""
        return [line for line in self.log.splitlines() if line and not line.startswith("{")]


def _select(url: str, statement: str, values: tuple[Any, ...]) -> list[Row]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row, connect_timeout=10) as connection:
        try:
            return connection.execute(statement.replace("?", "%s").encode(), values).fetchall()
        except psycopg.errors.UndefinedTable:
            return []


# --- looking at processes ---------------------------------------------------------------------------------------------


def run_dir(gateway: Gateway) -> Path:
    """Where the processes of its last start meet: control socket, numbers.

    Waits for control to say so: a gateway is ready as soon as its workers serve.
    """

    def sockets() -> list[str]:
        return [line["socket"] for line in gateway.lines(launched=True) if line["message"] == "control is ready"]

    socket = until(sockets, "control is ready")[-1]
    gateway.is_administered = True
    return Path(socket).parent


def is_dead(pid: int) -> bool:
    """No such process, or only its zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def rss(pid: int) -> int:
    """Resident memory in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fds(pid: int) -> int:
    """Open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def socket_inodes(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def connections(pid: int, remote_port: int) -> int:
    """Established TCP connections of a process to a port on 127.0.0.1."""
    wanted = f":{remote_port:04X}"
    mine = socket_inodes(pid)
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        count += fields[2].endswith(wanted) and fields[3] == "01" and fields[9] in mine
    return count
