"""What may be asked of a configuration without its providers' keys at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from arbiter.config.rates import Prepaid
from arbiter.config.snapshot import Client, Search, Server, Storage


@dataclass(frozen=True, slots=True)
class Local:
    """What a configuration says of this gateway itself, whoever its providers are."""

    server: Server
    storage: Storage
    clients: tuple[Client, ...]
    prepaid: tuple[Prepaid, ...]
    search: Search
    reasoning_keys: tuple[bytes, ...] = field(repr=False)
    data_dir: Path
