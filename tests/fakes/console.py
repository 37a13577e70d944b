"""The `arbiter` command as a person at a console has it: in a process of its own, in UTC.

done = arbiter("requests", "--db", path)       # its standard output is a pipe: no line is too long
shown = on_terminal(80, "requests", "--db", path)      # it is a terminal of so many columns
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
for _name in ("ARBITER_CONFIG", "COLUMNS"):
    ENV.pop(_name, None)


def arbiter(*words: object, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(words), cwd=cwd, env={**ENV, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def on_terminal(columns: int, *words: object) -> str:
    """What it shows; a line ends with one line break."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        _command(words), cwd=ROOT, env=ENV, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.STDOUT
    )
    os.close(its)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # Linux says EIO where the last one has closed it
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return shown.decode().replace("\r\n", "\n")


def _command(words: tuple[object, ...]) -> list[str | bytes]:
    return [sys.executable, "-m", "arbiter", *(word if isinstance(word, bytes) else str(word) for word in words)]
