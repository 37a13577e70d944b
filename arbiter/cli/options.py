"""Arguments that several commands share, and what they come to."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path

from arbiter.config.load import Flags


def add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (default: ARBITER_CONFIG, else ./arbiter.yaml)",
    )


def add_listen(command: argparse.ArgumentParser, workers: str) -> None:
    """Where to listen, and with how many; `workers` says what that is by default."""
    command.add_argument("--bind", type=_address, metavar="ADDRESS", help="address to listen on (env HOST)")
    command.add_argument("--port", type=_port, metavar="PORT", help="port to listen on (env PORT)")
    command.add_argument("--socket", metavar="PATH", help="unix socket to listen on, in place of address and port")
    command.add_argument("--workers", type=_workers, metavar="N", help=f"worker processes (default: {workers})")


def flags(arguments: argparse.Namespace) -> Flags:
    """What the listen arguments say; the rest is left to environment and file."""
    return Flags(arguments.bind, arguments.port, arguments.socket, arguments.workers)


def _address(text: str) -> str:
    if text != "localhost":
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise argparse.ArgumentTypeError("expected an IP address or localhost") from None
    return text


def _port(text: str) -> int:
    return _number(text, 65535)


def _workers(text: str) -> int:
    return _number(text, 256)


def _number(text: str, highest: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= highest:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {highest}")
    return int(text)
