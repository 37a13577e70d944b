"""A byte proxy of a few lines, run as a program: what handing bytes on costs in Python before anything is done to them.

PORT UPSTREAM_PORT
"""

import sys

import aiohttp
import uvloop
from aiohttp import web

DROPPED = {"host", "content-length", "transfer-encoding", "connection", "keep-alive"}


async def forward(request: web.Request) -> web.StreamResponse:
    headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED}
    url = f"http://127.0.0.1:{sys.argv[2]}{request.path_qs}"
    async with request.app["client"].request(request.method, url, data=await request.read(), headers=headers) as answer:
        out = web.StreamResponse(status=answer.status)
        out.headers.update({k: v for k, v in answer.headers.items() if k.lower() not in DROPPED})
        if answer.content_length is not None:
            out.content_length = answer.content_length
        await out.prepare(request)
        async for chunk in answer.content.iter_any():
            await out.write(chunk)
        await out.write_eof()
        return out


async def make() -> web.Application:
    app = web.Application(client_max_size=64 << 20)
    app["client"] = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=600),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )
    app.router.add_get("/health", lambda request: web.Response())
    app.router.add_route("*", "/{rest:.*}", forward)
    return app


if __name__ == "__main__":
    web.run_app(
        make(), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, backlog=4096, print=None,
        loop=uvloop.new_event_loop(),
    )  # fmt: skip
