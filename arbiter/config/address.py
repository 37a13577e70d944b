"""Where things are: provider endpoints and their proxies, the data directory, the store, the shared state."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from arbiter.config.auth_schema import Tls
from arbiter.config.decode import join, nearest
from arbiter.config.redacted import MASK
from arbiter.config.schema import Provider
from arbiter.config.snapshot import Endpoint
from arbiter.config.source import ConfigError, Fail

ENDPOINTS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "openrouter": "https://openrouter.ai/api/v1",
    "ollama": "http://localhost:11434/v1",
}
_OWN = {"azure": "an Azure resource"}
_EXAMPLES = {
    "azure": "https://NAME.openai.azure.com",
    "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com",
    "vertex": "https://us-east5-aiplatform.googleapis.com",
}
"""Who has no address that is everybody's."""
CALLS = ("/chat/completions", "/completions", "/messages", "/responses")
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_POSTGRES_HOSTS = re.compile(r"[A-Za-z0-9_.\[\]:,%-]{0,1000}")  # several for a server with stand-ins
_POSTGRES_WORD = re.compile(r"[A-Za-z0-9._~!$'()*+,;:%-]*")
_PASSWORD = re.compile(r"(postgresql://[^:/@]*:)([^/@]+)@")
POSTGRES_OPTIONS = (
    "channel_binding",
    "dbname",
    "gssencmode",
    "host",
    "hostaddr",
    "load_balance_hosts",
    "options",
    "passfile",
    "port",
    "require_auth",
    "service",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "user",
)
"""What a PostgreSQL URL may say behind its "?": of libpq's options, those that say whom to ask, and how safely."""
_AUTHORITY = re.compile(r"[A-Za-z0-9_.\[\]:-]{1,260}")

Fault = Callable[[str, str], ConfigError]


def endpoint(
    written: Provider, path: str, base: Path, env: Mapping[str, str], error: Fault, region: str | None = None
) -> Endpoint:
    """Where a provider's requests go; `region` is AWS's, of one that is there.

    Errors: what `error(path, message)` makes; no message repeats a URL.
    """
    here = join(path, "endpoint")
    http2 = written.http == "2"
    if written.type == "echo":
        if http2:
            raise error(join(path, "http"), "the echo provider is built in and has no connection")
        return Endpoint("echo", "echo", 0)
    if written.host is not None and not _AUTHORITY.fullmatch(written.host):
        raise error(join(path, "host"), "expected a host name, with a port where needed")
    tls = _tls(written.tls, join(path, "tls"), base, error)
    url = written.endpoint if written.endpoint is not None else ENDPOINTS.get(written.type)
    if url is None and region is not None:
        url = f"https://bedrock-runtime.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    if url is None and written.type == "vertex":
        url = _vertex(written.location or "global")
    if url is None:
        raise error(here, f"{_OWN[written.type]} needs one, as in {_EXAMPLES[written.type]}")
    if url.startswith("unix:"):
        if http2:
            raise error(
                join(path, "http"), "HTTP/2 is not built for unix sockets; use 1.1, or an http or https endpoint"
            )
        return _unix(url, written.host, here, error)
    parts = _split(url, partial(error, here))
    if parts.scheme not in ("http", "https"):
        known = ("http", "https", "unix")
        if "://" not in url:
            example = ENDPOINTS.get(written.type) or _EXAMPLES[written.type]
            raise error(here, f"expected a URL; write https:// (or http://) in front of the host, as in {example}")
        raise error(here, f"expected a URL with http, https or unix{nearest(parts.scheme, known)}")
    if parts.username is not None or parts.password is not None:
        raise error(here, "no credentials in a URL; use key or headers")
    if "?" in url or "#" in url:
        raise error(here, "a base URL has no query and no fragment; use headers")
    if not _PATH.fullmatch(parts.path):
        raise error(here, "the path has characters that must be percent-encoded")
    _check_base(parts.path, partial(error, here))
    if parts.scheme == "http" and any(tls):
        raise error(join(path, "tls"), "needs an https endpoint")
    host = _host(parts, partial(error, here))
    port = parts.port or _PORTS[parts.scheme]
    return Endpoint(
        scheme=parts.scheme,
        host=host,
        port=port,
        path=parts.path.rstrip("/"),
        host_header=written.host or None,
        proxy=_proxy(written.proxy, parts.scheme, host, port, env, join(path, "proxy"), error),
        tls_ca=tls[0],
        tls_cert=tls[1],
        tls_key=tls[2],
        http2=http2,
    )


def call(
    url: str, provider: Provider, path: str, here: str, base: Path, env: Mapping[str, str], error: Fault
) -> tuple[Endpoint, str]:
    """Where one call goes that has an address of its own, and its request target there. It is made with the provider's
    proxy and authority. Errors: as of `endpoint`; and for one that secrets would cross unencrypted."""
    parts = _split(url, partial(error, here))
    host = _host(parts, partial(error, here))
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise error(here, "expected https:// (or http:// on loopback): secrets go there")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise error(here, "no credentials and no fragment in this URL")
    if not _PATH.fullmatch(parts.path) or not _QUERY.fullmatch(parts.query):
        raise error(here, "the path has characters that must be percent-encoded")
    port = parts.port or _PORTS[parts.scheme]
    proxy = _proxy(provider.proxy, parts.scheme, host, port, env, join(path, "proxy"), error)
    ca = _tls(provider.tls, join(path, "tls"), base, error)[0] if parts.scheme == "https" else None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme, host, port, proxy=proxy, tls_ca=ca), target


def _vertex(location: str) -> str:
    """Where Vertex answers for a location; a region that is none is refused where the location is read."""
    if location == "global" or not location.replace("-", "").isalnum():
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):  # of several regions
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _check_base(path: str, fail: Fail) -> None:
    """A base URL is what all calls of a server have in common."""
    for call in CALLS:
        if path.rstrip("/").endswith(call):
            raise fail(f"this is the address of one call; a base URL ends before {call}, which Arbiter adds")


def _split(url: str, fail: Fail) -> SplitResult:
    if not url.isprintable() or " " in url or "\\" in url:
        raise fail("expected a URL without spaces")
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number, or over 65535
    except ValueError:
        raise fail("not a URL: its host or port cannot be read") from None
    if parts.port == 0:
        raise fail("0 is no port")
    return parts


def _host(parts: SplitResult, fail: Fail) -> str:
    host = parts.hostname or ""
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise fail("not an IPv6 address") from None
    try:
        host = host.encode("idna").decode("ascii") if host and not host.isascii() else host
    except UnicodeError:
        raise fail("not a host name") from None
    if not _HOST.fullmatch(host):
        raise fail("expected a host, as in https://host/v1")
    return host


def _unix(url: str, host_header: str | None, here: str, error: Fault) -> Endpoint:
    if not url.startswith("unix:///"):
        raise error(here, "expected unix:///absolute/path.sock, with :/base after it where needed")
    uds, _, path = url.removeprefix("unix://").partition(":")
    if "\0" in uds or uds == "/" or len(uds.encode()) > 107:
        raise error(here, "the path of a unix socket is at most 107 bytes")
    if not _PATH.fullmatch(path):
        raise error(here, "the base after : begins with / and is percent-encoded")
    _check_base(path, partial(error, here))
    return Endpoint("http", "localhost", 80, path.rstrip("/"), host_header, uds)


def _tls(tls: Tls, path: str, base: Path, error: Fault) -> tuple[str | None, str | None, str | None]:
    if tls.key is not None and tls.cert is None:
        raise error(join(path, "key"), "a client key needs its certificate: cert")
    files: list[str | None] = []
    for option in ("ca", "cert", "key"):
        value = getattr(tls, option)
        if value is None:
            files.append(None)
            continue
        file = base / value
        try:
            with file.open("rb") as stream:
                found = stream.read(1)
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "not a path"
            raise error(join(path, option), f"{file} cannot be read: {reason}") from None
        if not found:
            raise error(join(path, option), f"{file} is empty")
        files.append(str(file.absolute()))
    return files[0], files[1], files[2]


def _proxy(
    written: str | None, scheme: str, host: str, port: int, env: Mapping[str, str], path: str, error: Fault
) -> str | None:
    """The proxy's URL, from the provider, or else from the environment as other programs read it."""
    if written is not None:
        if written in ("", "none"):
            return None
        return _proxy_url(written, partial(error, path))
    if is_loopback(host):
        return None
    name = f"{scheme}_proxy"
    value = env.get(name) or env.get(name.upper()) or ""
    no_proxy = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if not value or _bypassed(host, port, no_proxy):
        return None
    if "://" not in value:
        value = f"http://{value}"
    return _proxy_url(value, lambda message: ConfigError(f"{name.upper()}: {message}"))


def _proxy_url(url: str, fail: Fail) -> str:
    parts = _split(url, fail)
    if parts.scheme not in PROXY_SCHEMES:
        raise fail(f"a proxy's URL begins with {', '.join(f'{scheme}://' for scheme in PROXY_SCHEMES)}")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise fail("a proxy's URL has no path")
    host = _host(parts, fail)
    credentials = parts.netloc.rpartition("@")[0]
    where = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{credentials + '@' if credentials else ''}{where}:{parts.port or _PORTS[parts.scheme]}"


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Whether `NO_PROXY` names the host: `*`, a host or a domain (with or without a dot), a port, a network."""
    for entry in no_proxy.lower().replace(" ", ",").split(","):
        name, colon, number = entry.rpartition(":")
        if colon and number.isascii() and number.isdigit() and name.count(":") == 0:
            if int(number[:6]) != port:
                continue
            entry = name
        entry = entry.strip("[]").removeprefix("*.").lstrip(".")
        if not entry:
            continue
        if entry == "*" or host.lower() == entry or host.lower().endswith(f".{entry}"):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except (ValueError, TypeError):
            continue
    return False


def is_loopback(host: str) -> bool:
    """Whether it is this host, by its name or its address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def data_dir(env: Mapping[str, str]) -> Path:
    """The directory of everything Arbiter writes: `ARBITER_DATA_DIR`, else `./data`."""
    return Path(env.get("ARBITER_DATA_DIR") or "data").absolute()


def state_dir(url: str | None, data: Path, fail: Fail) -> Path:
    """The directory of the shared state."""
    if url is None:
        return data / "state"
    scheme, _, rest = url.partition(":")
    if scheme in ("valkey", "valkeys", "redis", "rediss"):
        raise fail(f"{scheme}:// is not built yet; lmdb:///directory is")
    if scheme != "lmdb" or "\0" in rest or (rest.startswith("//") and not rest.startswith("///")):
        raise fail("expected lmdb:///absolute/directory or lmdb:relative/directory")
    directory = rest[2:] if rest.startswith("//") else rest
    if not directory.strip("/"):
        raise fail("lmdb: needs a directory")
    return Path(directory).absolute()


def store(url: str | None, data: Path, fail: Fail) -> tuple[Path | None, str]:
    """Where rows go: the file, where it is one, and the URL, written whole ("none": nothing is stored).

    Errors: what `fail(message)` makes; no message repeats a URL.
    """
    if url == "none":
        return None, "none"
    if url is None:
        path = data / "arbiter.db"
    else:
        scheme, _, rest = url.partition("://")
        if scheme.partition("+")[0] in ("postgresql", "postgres"):
            _check_postgres(scheme, rest, fail)
            return None, f"postgresql://{rest}"
        if scheme != "sqlite" or not rest.startswith("/") or "?" in rest or "\0" in rest:
            raise fail("expected sqlite:///relative.db, sqlite:////absolute.db, postgresql://user@host/name or none")
        name = rest[1:]
        if not name.strip("/") or name.endswith("/") or name == ":memory:":
            raise fail("expected a file, as in sqlite:///arbiter.db")
        path = Path(name).absolute()
    return path, f"sqlite:///{path}"


def _check_postgres(scheme: str, rest: str, fail: Fail) -> None:
    if "+" in scheme:
        raise fail("expected postgresql://, without the name of a driver")
    authority, _, path = rest.partition("/")
    path, _, query = path.partition("?")
    credentials, _, hosts = authority.rpartition("@")
    if "@" in credentials or not _POSTGRES_HOSTS.fullmatch(hosts) or not _POSTGRES_WORD.fullmatch(credentials + path):
        raise fail(
            "expected postgresql://user:password@host:5432/name, user and password percent-encoded where they hold "
            "anything but letters, digits and -._~"
        )
    for pair in filter(None, query.split("&")):
        name = pair.partition("=")[0]
        if name in ("password", "sslpassword"):
            raise fail(f"no {name} behind the ?; a password stands behind the user, as in postgresql://user:...@host")
        if name not in POSTGRES_OPTIONS:
            raise fail(f"{name!r} is no option of the connection{nearest(name, POSTGRES_OPTIONS)}")
        if not _POSTGRES_WORD.fullmatch(pair.partition("=")[2].replace("/", "")):
            raise fail(f"the value of {name} has characters that must be percent-encoded")


def hidden(url: str) -> str:
    """The URL of a store with `***` for its password."""
    return _PASSWORD.sub(rf"\1{MASK}@", url)


def passwords(url: str) -> frozenset[str]:
    """The password in the URL of a store, as it stands there and as it is."""
    found = _PASSWORD.match(url)
    return frozenset({found[2], unquote(found[2])} - {""}) if found else frozenset()
