"""`arbiter keys new`: make a client key. It is shown once; the configuration keeps only its hash."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from arbiter.cli import CommandError
from arbiter.config.snapshot import key_digest
from arbiter.config.words import check_name

PREFIX = "arb-"
ENTROPY_BYTES = 32


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "keys", help="make keys for clients", description="Keys for clients.", allow_abbrev=False
    )
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    new = verbs.add_parser(
        "new",
        help="make a key",
        description="Make a key, print it once, and print what belongs into the configuration.",
        allow_abbrev=False,
    )
    new.add_argument("name", metavar="NAME", help="who will use the key")
    new.add_argument("--agent", metavar="AGENT", help="the agent that uses it: claude-code, codex, opencode, …")
    new.add_argument("--json", action="store_true", help="print one JSON object")
    new.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_name(arguments.name, lambda message: CommandError(f"NAME: {message}"))
    if arguments.agent is not None:
        check_name(arguments.agent, lambda message: CommandError(f"--agent: {message}"))
    key = PREFIX + secrets.token_urlsafe(ENTROPY_BYTES)
    client = {"name": arguments.name, "key_hash": f"sha256:{key_digest(key)}"}
    if arguments.agent:
        client["agent"] = arguments.agent
    if arguments.json:
        print(json.dumps({"key": key, "client": client}))
        return 0
    print(key)
    # Standard output is the key and nothing else, so that it can be piped to where it belongs.
    lines = [f"{'  - ' if first == 'name' else '    '}{first}: {value}" for first, value in client.items()]
    print("\nThis is the only time the key is shown. In arbiter.yaml:\n\nclients:", *lines, sep="\n", file=sys.stderr)
    return 0
