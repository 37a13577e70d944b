"""`arbiter keys deployment`: the keys that reasoning is sealed with, which clients hand along between formats."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from arbiter.cli import CommandError, options
from arbiter.cli.table import Column, render
from arbiter.cli.tell import tell
from arbiter.config import keyring, reasoning
from arbiter.config.address import data_dir
from arbiter.config.load import NoConfig, Source
from arbiter.config.source import ConfigError

RELOAD = "/admin/keys/reload"
HEAD = (Column("fingerprint"), Column("use"), Column("from"))
IN_CONFIGURATION = "the configuration"


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = verbs.add_parser(
        "deployment",
        help="make, show and rotate the keys that reasoning is sealed with",
        description="Keys that reasoning is sealed with, which clients hand along between formats.",
        allow_abbrev=False,
    )
    inner = command.add_subparsers(dest="deployment_verb", metavar="VERB", required=True, title="verbs")
    options.add(
        inner,
        "new",
        run_new,
        help="print a new key",
        description="Print a new key for `reasoning.keys`, and keep nothing. Gateways that answer for one another need "
        "the same one; a gateway by itself made one for itself.",
        json="one JSON object",
    )
    show = options.add(
        inner,
        "show",
        run_show,
        help="show the fingerprints of the keys",
        description="Show the fingerprints of the keys that a gateway with this configuration has, and no key.",
        json="a JSON array",
    )
    rotate = options.add(
        inner,
        "rotate",
        run_rotate,
        help="seal with a new key from now on",
        description="Make a key in the data directory and seal with it from now on; the others still open what they "
        "sealed. A gateway that runs on it does so when this command returns.",
        json="one JSON object",
    )
    for verb in (show, rotate):
        options.add_config(verb)


def run_new(arguments: argparse.Namespace) -> int:
    key = reasoning.new()
    if arguments.json:
        options.print_json({"key": reasoning.spelled(key), "fingerprint": reasoning.fingerprint(key)})
        return 0
    print(reasoning.spelled(key))
    print(
        f"\nIts fingerprint is {reasoning.fingerprint(key)}. In arbiter.yaml of every gateway:\n\n"
        f'reasoning:\n  keys: ["${{{reasoning.VARIABLE}}}"]',
        file=sys.stderr,
    )
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    keys, source = _known(arguments.config)
    shown = [
        {"fingerprint": reasoning.fingerprint(key), "seals": place == 0, "from": source}
        for place, key in enumerate(keys)
    ]
    if arguments.json:
        options.print_json(shown)
    elif shown:
        rows = [(one["fingerprint"], "seals and opens" if one["seals"] else "opens", one["from"]) for one in shown]
        print(render(HEAD, rows), end="")
    else:
        print("There is no deployment key yet; the first start of a gateway makes one.")
    return 0


def run_rotate(arguments: argparse.Namespace) -> int:
    _, source = _known(arguments.config)
    if source == IN_CONFIGURATION:
        raise CommandError(
            "the deployment keys stand in the configuration: put a new one (`arbiter keys deployment new`) behind the "
            "others there and reload every gateway, then put it in front of them and reload again"
        )
    file = reasoning.path_in(data_dir(os.environ))
    key = reasoning.new()
    with keyring.held(file):
        known = list(reasoning.read(file))[: reasoning.MOST_KEYS - 1]
        # In two steps, or one worker would refuse for a moment what another has sealed.
        reasoning.write(file, [*known, key])
        tell(file.parent, RELOAD)
        reasoning.write(file, [key, *known])
    told = tell(file.parent, RELOAD)
    if arguments.json:
        options.print_json({"fingerprint": reasoning.fingerprint(key), "file": str(file)})
    else:
        print(f"{reasoning.fingerprint(key)} seals from now on; {len(known)} others open what they sealed.")
    if not told:
        print(f"No gateway runs on {file.parent}; the next one to start reads {file.name}.", file=sys.stderr)
    return 0


def _known(config: Path | None) -> tuple[tuple[bytes, ...], str]:
    """The keys, and where they are from; also where there is no configuration, or one that is no YAML.

    Errors: ConfigError where it says of keys what cannot be had: others would be shown in their place.
    """
    file = reasoning.path_in(data_dir(os.environ))
    try:
        keys = Source(config, dict(os.environ)).local("reasoning").reasoning_keys
    except ConfigError as error:
        if not isinstance(error, NoConfig) and (error.path or not error.file):
            raise
        keys = ()
    return (keys, IN_CONFIGURATION) if keys else (reasoning.read(file), str(file))
