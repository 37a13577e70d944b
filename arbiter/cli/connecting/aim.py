"""What an agent is pointed at, and where its settings are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

NAME = "arbiter"
"""What the gateway is called in settings that name providers; also the key that is sent where there is none."""


class Known(NamedTuple):
    """A model as the gateway's list tells of it; None is not known."""

    id: str
    shown: str
    max_input: int | None = None
    max_output: int | None = None
    takes: tuple[str, ...] | None = None

    def accepts(self, kind: str) -> bool:
        return self.takes is not None and kind in self.takes


@dataclass(frozen=True, slots=True)
class Aim:
    """`url` is without `/v1` and slash at its end. `model` is None where the agent is to use its own default."""

    url: str
    key: str = field(repr=False)
    model: str | None
    format: str
    known: tuple[Known, ...] = ()
    pins: bool = False

    @property
    def v1(self) -> str:
        """The base URL for clients that do not add `/v1` themselves."""
        return f"{self.url}/v1"

    @property
    def listed(self) -> tuple[Known, ...]:
        """The models to offer, the chosen one first."""
        chosen = [one for one in self.known if one.id == self.model]
        if self.model is not None and not chosen:
            chosen = [Known(self.model, self.model)]
        return (*chosen, *(one for one in self.known if one.id != self.model))


@dataclass(frozen=True, slots=True)
class Home:
    """Whose settings: the environment that says where they are, and the home directory below which they are else."""

    env: Mapping[str, str] = field(repr=False)
    path: Path

    def folder(self, variable: str, usual: str | Path) -> Path:
        """The folder that the variable names, else the usual one."""
        named = self.env.get(variable)
        return Path(named).expanduser() if named else self.path / usual

    @property
    def config(self) -> Path:
        return self._xdg("XDG_CONFIG_HOME", ".config")

    @property
    def state(self) -> Path:
        return self._xdg("XDG_STATE_HOME", ".local/state")

    def _xdg(self, variable: str, usual: str) -> Path:
        named = Path(self.env.get(variable) or ".")
        return named if named.is_absolute() else self.path / usual  # as its specification has it
