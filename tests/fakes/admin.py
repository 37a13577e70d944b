"""The administration, served for a test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette


@contextlib.contextmanager
def serving(app: Starlette, listener: socket.socket) -> Iterator[None]:
    """`app` on a listening socket, in a thread, until the block ends."""
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
