"""`arbiter connect`: point a coding agent's own settings at the gateway, and take that back."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbiter.cli import FAILED, OK, CommandError, UsageError, complain, options
from arbiter.cli.connecting import changes, records
from arbiter.cli.connecting.agents import AGENTS, KEY_VARIABLE, Agent, Steps
from arbiter.cli.connecting.aim import NAME, Aim, Home, Known
from arbiter.cli.connecting.changes import Change
from arbiter.cli.connecting.gateway import Unreachable, ask, base_url, is_loopback, listen_url
from arbiter.cli.connecting.records import Choices
from arbiter.config.load import NoConfig, Source, demo_snapshot
from arbiter.config.words import check_identifier, check_secret

MOST_NAMED = 12
_WHY = "as it would be in the way; --undo puts it back"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "connect",
        help="point a coding agent's settings at the gateway, or back",
        description="Point a coding agent's settings at the gateway. Only what has to change is changed; --undo "
        "takes it back. What was chosen is remembered: without options, the same is done again.",
        allow_abbrev=False,
    )
    command.add_argument("agent", choices=AGENTS, metavar="AGENT", help=f"one of {', '.join(AGENTS)}")
    command.add_argument(
        "--url", metavar="URL", help="the gateway's base URL (default: where the configuration's listens)"
    )
    command.add_argument(
        "--key",
        metavar="KEY",
        help=f"a client key, from `arbiter keys new` (env {KEY_VARIABLE}, which others do not see)",
    )
    command.add_argument("--model", metavar="MODEL", help="the model to ask for")
    command.add_argument(
        "--format", choices=("chat", "messages", "responses"), help="what the agent is to speak, where it has a choice"
    )
    command.add_argument(
        "--pin-models",
        action=argparse.BooleanOptionalAction,
        help="claude-code: use the model for all of its families, the small one too",
    )
    command.add_argument("--print", action="store_true", help="show what would be written, and write nothing")
    command.add_argument("--undo", action="store_true", help="put back what was there before, and forget the choices")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_config(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    agent = AGENTS[arguments.agent]
    home = Home(dict(os.environ), Path.home())
    folder = home.state / "arbiter" / "connect" / arguments.agent
    if arguments.undo and any((arguments.url, arguments.key, arguments.model, arguments.format)):
        raise UsageError("--undo takes no choices")
    if arguments.print:
        return _undo(arguments, folder) if arguments.undo else _connect(arguments, agent, home, folder)
    with records.held(folder):
        return _undo(arguments, folder) if arguments.undo else _connect(arguments, agent, home, folder)


# ------------------------------------------------------------------------------------------------------------ connect


def _connect(arguments: argparse.Namespace, agent: Agent, home: Home, folder: Path) -> int:
    record = records.read(folder)
    choices = _choices(arguments, agent, record.choices)
    notes: list[str] = []
    aim = _aim(arguments, agent, choices, notes)
    steps = agent.steps(aim, home)
    found = [changes.connecting(settings, record, folder) for settings in steps.files]
    notes += steps.notes
    for change in found:
        notes += [f"{change.path}: {what} is taken out, {_WHY}" for what in change.taken_out]
        if choices.key and change.now is not None and records.mode(change.path) & 0o077:
            notes.append(f"others can read the key in {change.path}; `chmod 600` keeps it yours")
    if not arguments.print:
        changes.write(found, choices, record, folder)
    secret = choices.key if arguments.print else None
    _Report(arguments, "would be written" if arguments.print else "written", secret).show(found, aim, steps, notes)
    return 0


def _choices(arguments: argparse.Namespace, agent: Agent, before: Choices) -> Choices:
    key = arguments.key or os.environ.get(KEY_VARIABLE)
    if key is not None:
        check_secret(key, lambda message: UsageError(f"--key: {message}"))
    if arguments.model is not None:
        check_identifier(arguments.model, lambda message: UsageError(f"--model: {message}"))
        if any("\ud800" <= char <= "\udfff" for char in arguments.model):
            raise UsageError("--model: this is no text")
    if arguments.format is not None and arguments.format not in agent.formats:
        raise UsageError(f"--format: {agent.title} speaks {' or '.join(agent.formats)}")
    if arguments.pin_models and arguments.agent != "claude-code":
        raise UsageError("--pin-models: only Claude Code has families of models")
    chosen = Choices(
        url=base_url(arguments.url) if arguments.url is not None else before.url,
        key=key or before.key,
        model=arguments.model or before.model,
        format=arguments.format or before.format,
        pins=before.pins if arguments.pin_models is None else arguments.pin_models,
    )
    if chosen.pins and chosen.model is None:
        raise UsageError("--pin-models: which model? Name it with --model")
    return chosen


def _aim(arguments: argparse.Namespace, agent: Agent, choices: Choices, notes: list[str]) -> Aim:
    """Where to; `notes` takes what is doubtful about it."""
    url = choices.url or _listening(arguments.config)
    key = choices.key or NAME
    model = choices.model
    known: tuple[Known, ...] = ()
    try:
        known = ask(url, choices.key)
    except Unreachable as error:
        if model is None and not agent.has_default:
            raise UsageError(
                f"the gateway at {url} did not tell of its models: {error}; start it, or name one with --model"
            ) from None
        notes.append(f"the gateway at {url} did not tell of its models: {error}; connect again once it runs")
    names = [one.id for one in known]
    if model is None and not agent.has_default:
        if len(names) != 1:
            listed = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
            raise UsageError(f"which model? Name it with --model{': ' + listed if listed else ''}")
        (model,) = names
    if model is None and names and not any(name.rpartition("/")[2].startswith(agent.own) for name in names):
        notes.append(
            f"the gateway lists no {agent.own}… model, and {agent.title} asks for those by itself; to have it ask for "
            f"another: --model {names[0]}" + (" --pin-models" if agent.own == "claude-" else "")
        )
    if model is not None and names and model not in names:
        notes.append(f"the gateway does not list the model {model}")
    if choices.key and url.startswith("http://") and not is_loopback(url):
        notes.append(f"the key crosses the network unencrypted ({url})")
    return Aim(url, key, model, choices.format or agent.formats[0], known, choices.pins)


def _listening(config: Path | None) -> str:
    try:
        server = Source(config, dict(os.environ)).local("server").server
    except NoConfig:
        server = demo_snapshot(dict(os.environ)).server  # where `arbiter demo` listens
    if server.socket is not None:
        raise CommandError("the gateway listens on a unix socket, which agents cannot reach; name a URL with --url")
    return listen_url(server.bind, server.port)


# --------------------------------------------------------------------------------------------------------------- undo


def _undo(arguments: argparse.Namespace, folder: Path) -> int:
    was_connected = (folder / records.RECORD).exists()
    record = records.read(folder)
    found, notes = [], []
    for written in record.files:
        try:
            found.append((written, changes.undoing(written, folder)))
        except CommandError as error:
            copy = f"; {folder / written.backup} is what it was" if written.backup else ""
            notes.append(f"{error}{copy}")
    failed = len(notes)
    for _, change in found:
        notes += [f"{change.path}: {changes.spelled(place)} was changed since, and stays" for place in change.kept]
    if not arguments.print:
        changes.undo(found, record, folder)
    if not was_connected:
        notes.append(f"nothing to undo: {arguments.agent} was not connected from here")
    elif not record.files:
        notes.append(
            f"no file was written for {arguments.agent}, so none is put back: variables that were exported end with "
            "their shell, and what a command did is taken back in the agent"
        )
    verb = "would be put back" if arguments.print else "put back"
    _Report(arguments, verb, record.choices.key).show([change for _, change in found], None, Steps(), notes)
    return FAILED if failed else OK


# --------------------------------------------------------------------------------------------------------------- tell


@dataclass(frozen=True, slots=True)
class _Report:
    """What was done, for people or for programs. Where a `secret` is named it is not shown in differences."""

    arguments: argparse.Namespace
    verb: str
    secret: str | None

    def show(self, found: Sequence[Change], aim: Aim | None, steps: Steps, notes: Sequence[str]) -> None:
        if self.arguments.json:
            print(json.dumps(self._object(found, aim, steps, notes), ensure_ascii=False, indent=1))
            return
        for change in found:
            if self.arguments.print and change.is_one:
                print(self._diff(change), end="")
            else:
                print(f"{change.path}: {self._what(change)}")
        # On their own, so that a shell can run what is printed.
        for name, value in steps.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        if steps.command:
            print(shlex.join(steps.command))
        for note in notes:
            complain(note)

    def _object(self, found: Sequence[Change], aim: Aim | None, steps: Steps, notes: Sequence[str]) -> dict[str, Any]:
        files = [
            {"path": str(one.path), "changed": one.is_one, "what": self._what(one)}
            | ({"diff": self._diff(one)} if self.arguments.print else {})
            for one in found
        ]
        told = {"url": aim.url, "model": aim.model, "format": aim.format} if aim is not None else {}
        return {
            "agent": self.arguments.agent,
            **told,
            "files": files,
            "environment": steps.environment,
            "command": steps.command,
            "notes": list(notes),
        }

    def _what(self, change: Change) -> str:
        if not change.is_one:
            return "as it should be"
        if change.then is None:
            return "would be removed" if self.arguments.print else "removed"
        return self.verb

    def _diff(self, change: Change) -> str:
        old, new = ((text or "").splitlines(keepends=True) for text in (change.now, change.then))
        lines = difflib.unified_diff(old, new, str(change.path), str(change.path))
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        return text.replace(self.secret, "***") if self.secret else text
