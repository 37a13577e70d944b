"""The sections of the file about who asks: keys, clients, and how their conversations are told apart."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import field

from arbiter.config.sections import Duration, Moment, Section, doc, instead

_REQUEST_KINDS = Literal["main", "subagent", "workflow", "compaction", "auxiliary", "title", "keepwarm"]


class Auth(Section):
    mode: Annotated[
        Literal["none", "attribute", "require"],
        doc(
            "`none` ignores keys; `attribute` serves everybody and names the callers it knows; "
            "`require` answers 401 to a key it does not know. Both answer 401 to one that was revoked or has expired."
        ),
    ] = "attribute"


class Client(Section):
    not_built = frozenset({"budgets", "rate_limits"})
    hints: ClassVar[dict[str, str]] = {
        "key": "no key stands in this file, only its key_hash; `arbiter keys new NAME --print` makes the pair",
        **instead("allow", "models", "allowed_models"),
        **instead("expires", "expires_at", "expiry"),
    }

    name: Annotated[str, doc("Who calls; appears in rows and logs. Unique.")]
    key_hash: Annotated[
        str, doc("`sha256:` and 64 hexadecimal digits, made by `arbiter keys new NAME --print`. Never the key itself.")
    ]
    agent: Annotated[str | None, doc("Which agent uses this key (`claude-code`, `codex`, …); appears in rows.")] = None
    allow: Annotated[list[str], doc("Models and aliases this client may ask for; `*` and `?` match as in a shell.")] = (
        field(default_factory=lambda: ["*"])
    )
    expires_ms: Annotated[
        Moment | None,
        doc("From when on the key is none, as ISO 8601: `2026-12-31T18:00:00Z`. Without a zone it is UTC."),
    ] = field(name="expires", default=None)
    group: Annotated[str | None, doc("Whom the client belongs to: a team, a project. Appears in rows.")] = None
    overrides: Annotated[
        dict[str, str],
        doc("What this client gets in place of what it asks for: a model or alias each, `*` and `?` in the first."),
    ] = field(default_factory=dict)
    metadata: Annotated[dict[str, str], doc("Words of your own about this client, shown beside it.")] = field(
        default_factory=dict
    )


class SessionAffinity(Section):
    header: Annotated[str, doc("Header in which a client says which conversation a request belongs to.")] = (
        "X-Session-Id"
    )
    ttl_s: Annotated[
        Duration,
        doc("How long after its last call a conversation stays with who served it. `0`: not at all."),
    ] = field(name="ttl", default=25 * 3600.0)
    no_pin: Annotated[
        list[_REQUEST_KINDS], doc("Kinds of requests that go where they would without a conversation.")
    ] = field(default_factory=list)


class Titles(Section):
    hints: ClassVar[dict[str, str]] = instead("alias", "model", "to", "by")

    alias: Annotated[
        str | None,
        doc(
            "An alias that is asked for a title and a summary of each session, after its 1st, 10th, 20th, … turn. It "
            "is sent some of the user's words: the first and the latest, at most 2,000 characters of each, without "
            "secrets. By default nobody is asked, and nothing is sent."
        ),
    ] = None
    per_day: Annotated[int, doc("So often it is asked on one day (UTC), and no more.", ge=1, le=1000)] = 50


class Sessions(Section):
    trust_user_agent: Annotated[
        bool, doc("Take a session id from the headers of an agent that only its `User-Agent` names.")
    ] = False
    prompt_cache_key: Annotated[bool, doc("Take the body's `prompt_cache_key` for a session id.")] = False
    idle_timeout_s: Annotated[
        Duration,
        doc(
            "A session nobody has used for this long is closed; what a client asks without naming a session is one "
            "session until then. `0`: nothing is closed, and what names no session has none."
        ),
    ] = field(name="idle_timeout", default=12 * 3600.0)
    titles: Annotated[
        Titles, doc("Who gives titles to sessions that neither their agent nor an operator has named.")
    ] = field(default_factory=Titles)
