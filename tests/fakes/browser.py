"""A headless Chromium, spoken to over its debugging pipe: nothing to install beside the browser itself."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe", "--window-size=1440,900",
)  # fmt: skip


class Page:
    """One tab. `problems` are script errors, refusals by the content policy and failed requests; `asked` every URL."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, expression: str, within_s: float = 30.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + within_s
        while True:
            with contextlib.suppress(RuntimeError):  # the page is just being replaced
                if self.js(expression):
                    return
            if time.monotonic() > end:
                raise AssertionError(f"never true on the page: {expression}\n{self.problems}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        code = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            code = {"text": "\r", "windowsVirtualKeyCode": 13}  # type: ignore[dict-item]
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._back], [], [], 60)[0]:
                raise TimeoutError("the browser says nothing")
            data = os.read(self._back, 1 << 20)
            if not data:
                raise EOFError("the browser is gone")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])


@contextlib.contextmanager
def page(profile: Path) -> Iterator[Page]:
    """A fresh browser with one empty tab; `profile` is a directory for it to live in."""
    program = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    to_read, to = os.pipe()
    back, back_write = os.pipe()
    # Chromium reads its pipe at 3 and writes at 4; the pipes' own numbers may be anything.
    high_read, high_write = 60, 61
    script = f'exec "$@" 3<&{high_read} 4>&{high_write} {high_read}<&- {high_write}>&-'
    os.dup2(to_read, high_read)
    os.dup2(back_write, high_write)
    child = subprocess.Popen(
        ["bash", "-c", script, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(high_read, high_write),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    for descriptor in (to_read, back_write, high_read, high_write):
        os.close(descriptor)
    try:
        yield Page(to, back)
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(to)
        os.close(back)
