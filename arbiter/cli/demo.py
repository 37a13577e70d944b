"""`arbiter demo`: the whole gateway in front of a built-in provider, without a key or a network."""

from __future__ import annotations

import argparse
import os
import tempfile

from arbiter.cli import options
from arbiter.cli.serve import start
from arbiter.config.load import Source


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
        return start(Source(None, env, flags, demo=True))
    with tempfile.TemporaryDirectory(prefix="arbiter-demo-", ignore_cleanup_errors=True) as directory:
        return start(Source(None, {**env, "ARBITER_DATA_DIR": directory}, flags, demo=True))
