"""A provider for who never asks it: whatever opens something is left out, or has something to stand in for it.

So `arbiter prices` and `arbiter bench` work in a shell that has no key, and as a user who may not read the gateway's
files. What stands in is no empty text: a pool of keys keeps its places, and a provider without a key is another one.
"""

from __future__ import annotations

from msgspec import structs

from arbiter.config.auth_schema import Key, Tls
from arbiter.config.decode import STAND_IN
from arbiter.config.schema import Provider


def provider(written: Provider) -> Provider:
    """`written` without a look at any file: of keys, of certificates, of a service account; and without a proxy."""
    if written.type == "echo":
        return written
    keys = [one if isinstance(one, str) else _key(one, index) for index, one in enumerate(written.keys)]
    known = structs.replace(written, keys=keys, credentials=None, proxy="none", tls=Tls())
    return known if known.key_file is None else structs.replace(known, key=f"{STAND_IN}-file", key_file=None)


def _key(one: Key, index: int) -> Key:
    return one if one.key_file is None else structs.replace(one, key=f"{STAND_IN}-file-{index}", key_file=None)
