"""`arbiter demo`: the whole gateway in front of a built-in provider, without a key or a network."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile

from arbiter.cli import options
from arbiter.cli.serve import start
from arbiter.config.load import Source
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import StoreDown


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "demo",
        help="run the gateway on a built-in echo provider",
        description="Run the gateway with the built-in echo provider under every usual model name: "
        "no configuration, no key, no network. What it records is gone when it ends, unless ARBITER_DATA_DIR is set.",
        allow_abbrev=False,
    )
    options.add_listen(command, "1")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    env, flags = dict(os.environ), options.flags(arguments)
    if env.get("ARBITER_DATA_DIR"):
        return _start(Source(None, env, flags, demo=True))
    with tempfile.TemporaryDirectory(prefix="arbiter-demo-", ignore_cleanup_errors=True) as directory:
        return _start(Source(None, {**env, "ARBITER_DATA_DIR": directory}, flags, demo=True))


def _start(source: Source) -> int:
    """Serve, with a store that is there from the beginning: the command that the banner names may come at once."""
    path = source.load().storage.path
    if path is not None and not path.exists():
        with contextlib.suppress(StoreDown):  # what is wrong with it, the gateway says
            SqliteStore(path).close()
    return start(source)
