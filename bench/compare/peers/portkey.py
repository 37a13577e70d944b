"""Portkey's gateway on Node; where a request goes, its headers say."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator

from bench.compare.peers.base import CHAT, INSTALLER, Peer, Place, Speaks, Target, Way, home, program
from bench.path import peers as path_peers

PACKAGE = "portkey/node_modules/@portkey-ai/gateway"


def version() -> str | None:
    manifest = home() / PACKAGE / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else None


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    port = path_peers.free_port()
    script = home() / PACKAGE / "build" / "start-server.js"
    command = [shutil.which("node") or "node", script, "--headless", f"--port={port}"]
    env = {"NODE_ENV": "production"}
    with program(place, "portkey", command, port=port, ready="/", env=env) as child:

        def target(answer: str, speaks: Speaks, tls: bool) -> Target:
            headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{place.url(answer)}/v1"}
            return Target(port, CHAT, "bench", headers)

        yield Way(target, root=lambda answer: child.pid)


PEER = Peer("Portkey", f"{INSTALLER} portkey", version, start, keeps="retries, hooks")
