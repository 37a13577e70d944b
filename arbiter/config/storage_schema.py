"""What is kept of the traffic, where, and for how long, as the file has it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from arbiter.config.sections import Duration, Section, Size, Ttl, doc, instead


class Capture(Section):
    hints: ClassVar[dict[str, str]] = {
        **instead("content", "enabled", "bodies", "capture_content", "messages"),
        **instead("ttl", "content_ttl", "retention"),
    }

    content: Annotated[
        bool, doc("Keep what is asked and answered: messages, system prompts, tools, answers; without secrets.")
    ] = False
    headers: Annotated[
        bool, doc("Keep the headers of each request and of its answer. Those that look like credentials are masked.")
    ] = False
    ttl_s: Annotated[Duration, doc("How long that is kept. `0`: for ever.")] = field(name="ttl", default=72 * 3600.0)
    redact: Annotated[
        list[str],
        doc(
            "Regular expressions (Python's) for what else must not be kept; what they match becomes `***`. Keys and "
            "tokens of known shapes, and this configuration's secrets, become that anyway."
        ),
    ] = field(default_factory=list)
    preview_chars: Annotated[
        int, doc("How much of a message the request page shows before its link to the whole.", ge=1, le=32_768)
    ] = 4096
    max: Annotated[
        Size,
        doc("What may wait to be stored; beyond it requests are served, and their content is dropped.", ge=1 << 20),
    ] = 256 << 20


class Embed(Section):
    hints: ClassVar[dict[str, str]] = instead("alias", "model", "to", "by")

    alias: Annotated[
        str | None,
        doc(
            "An alias for an embedding model. It is sent what users and models said in captured content, titles, "
            "summaries and notes, without secrets. By default nobody is asked, and nothing is sent."
        ),
    ] = None
    dimensions: Annotated[
        Annotated[int, Meta(ge=1, le=4096)] | None,
        doc("How many numbers a vector is to have, of models that can be told. Fewer take less room, and less time."),
    ] = None
    per_day: Annotated[
        int,
        doc(
            "So often it is asked on one day (UTC) for what was said, up to 32 pieces of text at once, and no more. A "
            "search asks once; that counts too, and is never refused.",
            ge=1,
            le=10_000,
        ),
    ] = 1000


class Search(Section):
    hints: ClassVar[dict[str, str]] = instead("index", "enabled", "on", "text")

    index: Annotated[
        bool,
        doc(
            "Keep an index for `arbiter search`: of captured content, titles, summaries, notes and names of tools. It "
            "is made and dropped in the background when this changes."
        ),
    ] = False
    embed: Annotated[
        Embed, doc("Who makes the vectors by which `arbiter search --meaning` finds what was said in other words.")
    ] = field(default_factory=Embed)


class Storage(Section):
    url: Annotated[
        str | None,
        doc(
            "Where rows go: `sqlite:///relative.db`, `sqlite:////absolute.db`, "
            "`postgresql://user:password@host/name`, or `none`. "
            "Default: `arbiter.db` in the data directory."
        ),
    ] = None
    journal_max: Annotated[Size, doc("Rows waiting to be stored, at most.", ge=1 << 20)] = 1 << 30
    on_full: Annotated[
        Literal["serve", "refuse"], doc("Then, or on a full disk: serve unrecorded and count, or refuse requests.")
    ] = "serve"
    capture: Annotated[Capture, doc("What is kept of the traffic itself. By default nothing.")] = field(
        default_factory=Capture
    )
    rows_ttl: Annotated[
        Literal["never"] | Ttl,
        doc("Delete requests, attempts and sessions that are older than this, once an hour."),
    ] = "never"
