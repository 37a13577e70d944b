"""`arbiter serve`: run the gateway."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from arbiter import clock, log
from arbiter.cli import options
from arbiter.config import spoken
from arbiter.config.load import Source
from arbiter.ledger.tariffs import known_apart
from arbiter.state import login_file

if TYPE_CHECKING:
    from arbiter.config.snapshot import Snapshot
    from arbiter.lines import Line


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "serve",
        help="run the gateway",
        description="Run the gateway in the foreground. SIGTERM and SIGINT drain: open requests may finish. "
        "SIGHUP reads the configuration again.",
        allow_abbrev=False,
    )
    options.add_config(command)
    options.add_listen(command, "server.workers, else one per core")
    command.add_argument("--reload", action="store_true", help="read the configuration again whenever its file changes")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    source = Source(arguments.config, dict(os.environ), options.flags(arguments), look_up=known_apart, keeps=True)
    return start(source, watches=arguments.reload)


def start(source: Source, *, watches: bool = False) -> int:
    """Load, say what is doubtful, serve until told to stop."""
    # A reload that is asked for before there is anything to reload would end us; what is read now is new enough.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watch = None
    if watches:
        from arbiter.app.reload import FileWatch

        watch = FileWatch(source)  # before it is read, so that no change is missed
    snapshot = source.load()
    set_up_log(snapshot)
    if (overdue := spoken.overdue(clock.now_ms())) is not None:
        log.Log("arbiter.config").warn(overdue)
    from arbiter.app.supervisor import serve  # the server and its event loop: only now

    return serve(snapshot, _control, source=source, watch=watch)


def _control(snapshot: Snapshot, socket: Path, parent: int, stopping: Path, line: Line) -> None:
    from arbiter.control.main import run  # its web framework has no place in the workers' memory

    run(snapshot, socket, parent, stopping, line)


def set_up_log(snapshot: Snapshot) -> None:
    log.setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=snapshot.secrets())
    for warning in snapshot.warnings:
        log.Log("arbiter.config").warn(warning)
    for fault in login_file.faults(snapshot.logins, snapshot.data_dir, snapshot.fingerprint_key):
        log.Log("arbiter.config").warn(fault)
