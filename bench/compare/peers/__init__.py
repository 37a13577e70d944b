"""Who is compared: one module each, in the order in which they are shown. Adding one is a module and a line here."""

from bench.compare.peers import (
    aiohttp_proxy,
    arbiter,
    ferrogw,
    haproxy,
    litellm,
    nginx,
    portkey,
    rolter,
    smg,
    tensorzero,
    vllm_router,
)
from bench.compare.peers.base import Peer

ALL: tuple[Peer, ...] = (
    nginx.PEER,
    haproxy.PEER,
    aiohttp_proxy.PEER,
    arbiter.PEER,
    vllm_router.PEER,
    smg.PEER,
    rolter.PEER,
    ferrogw.PEER,
    tensorzero.PEER,
    portkey.PEER,
    litellm.PEER,
)
