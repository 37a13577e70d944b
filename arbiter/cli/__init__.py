"""The `arbiter` command: one file per command, each with `add` (its arguments) and `run`.

Exit codes: 0 done; 1 the configuration does not work, or the command failed; 2 the command line is wrong;
130 interrupted. What went wrong is one line on standard error, with what to do about it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from arbiter import __version__

COMMANDS = (
    "serve",
    "demo",
    "connect",
    "check",
    "bench",
    "route",
    "keys",
    "login",
    "requests",
    "export",
    "sessions",
    "session",
    "search",
    "cache",
    "limits",
    "cost",
    "reprice",
    "reconcile",
    "prices",
)

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandError(Exception):
    """A command cannot do what it was asked; its text is what the console shows."""

    code = FAILED


class UsageError(CommandError):
    """The command line cannot be meant so: what argparse itself does not see."""

    code = USAGE


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line with the arguments of the named commands; a command's module is imported only for this."""
    top = argparse.ArgumentParser(
        prog="arbiter",
        description="An LLM gateway for coding agents.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage. Documentation: docs/cli.md.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"arbiter {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in names:
        importlib.import_module(f"arbiter.cli.{name}").add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Tracebacks are for bugs only."""
    # Imported here: `arbiter.cli` itself stays cheap for those who want its constants.
    from arbiter.config.source import ConfigError

    given = list(sys.argv[1:] if argv is None else argv)
    # `arbiter serve` does not load what `arbiter requests` reads its table with.
    top = parser([name for name in COMMANDS if name in given[:1]] or COMMANDS)
    try:
        arguments = top.parse_args(given)
    except SystemExit as stop:  # argparse has printed help, the version, or what is wrong
        return stop.code if isinstance(stop.code, int) else USAGE
    if arguments.command is None:
        top.print_help(sys.stderr)
        return USAGE
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except ConfigError as error:
        complain(str(error))
        if error.path and arguments.command == "serve" and not str(error).endswith("\n"):
            complain("docs/config.md explains every key")
        return FAILED
    except CommandError as error:
        complain(str(error))
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `arbiter check | head`: the reader has seen enough. Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def complain(message: str) -> None:
    """One message on standard error, under our name."""
    print(f"arbiter: {message}", file=sys.stderr)
