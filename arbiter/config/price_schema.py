"""The file's words about money: the catalog's rows, and where other prices come from. See `schema`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from arbiter.config.rates import TOKEN_PRICES
from arbiter.config.sections import Duration, Moment, Number, Price, Section, doc, instead


class Prices(Section, kw_only=True):
    """What tokens cost. None: nobody knows."""

    hints: ClassVar[dict[str, str]] = dict.fromkeys(
        ("cache_read_usd_per_mtok", "cache_read_input_usd_per_mtok", "cached_usd_per_mtok"),
        'unknown key; did you mean "cached_input_usd_per_mtok"?',
    )

    input_pd: Annotated[Price | None, doc("Input that neither came from a cache nor went into one.")] = field(
        name="input_usd_per_mtok", default=None
    )
    cached_input_pd: Annotated[Price | None, doc("Input read from the provider's cache.")] = field(
        name="cached_input_usd_per_mtok", default=None
    )
    cache_write_5m_pd: Annotated[
        Price | None, doc("Input written to the cache for five minutes, or for a time that the provider does not tell.")
    ] = field(name="cache_write_5m_usd_per_mtok", default=None)
    cache_write_1h_pd: Annotated[Price | None, doc("Input written to the cache for an hour.")] = field(
        name="cache_write_1h_usd_per_mtok", default=None
    )
    output_pd: Annotated[Price | None, doc("Output, reasoning included.")] = field(
        name="output_usd_per_mtok", default=None
    )
    reasoning_pd: Annotated[Price | None, doc("Reasoning, where it costs something else than other output.")] = field(
        name="reasoning_usd_per_mtok", default=None
    )
    audio_input_pd: Annotated[Price | None, doc("Audio in the input, where it costs something else.")] = field(
        name="audio_input_usd_per_mtok", default=None
    )
    audio_output_pd: Annotated[Price | None, doc("Audio in the output, where it costs something else.")] = field(
        name="audio_output_usd_per_mtok", default=None
    )
    request_micro: Annotated[Price | None, doc("A fee for each request, in USD, beside its tokens.")] = field(
        name="request_usd", default=None
    )
    web_search_micro: Annotated[
        Price | None, doc("A fee for each search that the provider ran itself, in USD, where its usage tells of them.")
    ] = field(name="web_search_usd", default=None)


class Tier(Prices):
    above_input_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)],
        doc("This tier's prices hold for the whole of a request with more input than this, caches included."),
    ]


class CatalogRow(Prices):
    hints: ClassVar[dict[str, str]] = {
        **Prices.hints,
        "max_output_tokens": "it stands with the provider's model: `{ id: …, max_output_tokens: … }`",
    }

    model: Annotated[str, doc("`provider/model`, the model by the `id` it is declared with.")]
    tiers: Annotated[list[Tier], doc("Other prices for requests with much input.")] = field(default_factory=list)
    max_input_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        doc(
            "The most input it takes. Left out: what the price list says. A conversation that is too long for one "
            "model falls back to a larger one only."
        ),
    ] = None
    latency_ms_p50: Annotated[
        Number | None, doc("Median time to its first token in milliseconds, for `select: fastest`.")
    ] = None
    input_modalities: Annotated[
        list[
            Annotated[
                Literal["text", "image", "file", "audio"],
                Meta(extra={"not_built": ("video",), "meant": {"vision": "image", "images": "image", "pdf": "file"}}),
            ]
        ],
        doc("What it takes in. Left out: nobody knows, which is neither yes nor no."),
    ] = field(default_factory=list)
    metadata: Annotated[
        dict[str, str], doc("Words of your own about this model. `GET /models` passes them on, and nothing reads them.")
    ] = field(default_factory=dict)


class Override(Section):
    """Prices agreed on with a provider, laid over what is known of a model otherwise."""

    hints: ClassVar[dict[str, str]] = {
        **{
            f"{name}_usd_per_mtok": f"prices of an override are in its currency: {name}_per_mtok"
            for name in TOKEN_PRICES
        },
        **instead("fx_rate_to_usd", "fx_rate", "rate", "usd_rate"),
        **instead("discount_percent", "discount"),
        **instead("request_fee", "request", "request_usd"),
        **instead("web_search_fee", "web_search", "web_search_usd"),
    }

    provider: Annotated[str, doc("Whose models; `*` and `?` match as in a shell.")] = "*"
    model: Annotated[str, doc("Which models, by the name that the provider is sent.")] = "*"
    service_tier: Annotated[
        str | None, doc("Only what the provider reports to have served in this tier: `flex`, `priority`, `batch`, …")
    ] = None
    from_ms: Annotated[Moment | None, doc("When it begins to hold.")] = field(name="from", default=None)
    until_ms: Annotated[Moment | None, doc("When it ends to hold.")] = field(name="until", default=None)
    currency: Annotated[str, doc("What the prices below are in; not in `USD`: with `fx_rate_to_usd`.")] = "USD"
    fx_rate_to_usd: Annotated[Price | None, doc("How many USD one unit of `currency` is.")] = None
    discount_percent: Annotated[
        Price | None, doc("Off every price that is not named below: those of `models` or of the price source.")
    ] = None
    input_pd: Annotated[Price | None, doc("In place of `input_usd_per_mtok`.")] = field(
        name="input_per_mtok", default=None
    )
    cached_input_pd: Annotated[Price | None, doc("In place of `cached_input_usd_per_mtok`.")] = field(
        name="cached_input_per_mtok", default=None
    )
    cache_write_5m_pd: Annotated[Price | None, doc("In place of `cache_write_5m_usd_per_mtok`.")] = field(
        name="cache_write_5m_per_mtok", default=None
    )
    cache_write_1h_pd: Annotated[Price | None, doc("In place of `cache_write_1h_usd_per_mtok`.")] = field(
        name="cache_write_1h_per_mtok", default=None
    )
    output_pd: Annotated[Price | None, doc("In place of `output_usd_per_mtok`.")] = field(
        name="output_per_mtok", default=None
    )
    reasoning_pd: Annotated[Price | None, doc("In place of `reasoning_usd_per_mtok`.")] = field(
        name="reasoning_per_mtok", default=None
    )
    audio_input_pd: Annotated[Price | None, doc("In place of `audio_input_usd_per_mtok`.")] = field(
        name="audio_input_per_mtok", default=None
    )
    audio_output_pd: Annotated[Price | None, doc("In place of `audio_output_usd_per_mtok`.")] = field(
        name="audio_output_per_mtok", default=None
    )
    request_micro: Annotated[Price | None, doc("A fee for each request.")] = field(name="request_fee", default=None)
    web_search_micro: Annotated[Price | None, doc("A fee for each search that the provider ran itself.")] = field(
        name="web_search_fee", default=None
    )


class Prepaid(Section, kw_only=True):
    provider: Annotated[str, doc("Who was paid.")]
    account: Annotated[str | None, doc("For which of its keys, by label. Default: for all of them.")] = None
    balance_micro: Annotated[Price, doc("How much was left, in USD.")] = field(name="balance_usd")
    since_ms: Annotated[Moment, doc("When that was.")] = field(name="since")


class PriceSources(Section):
    hints: ClassVar[dict[str, str]] = {
        **instead("overrides", "override", "custom"),
        **instead("refresh", "refresh_interval", "ttl", "update"),
    }

    source: Annotated[
        str, doc("`genai-prices`: what comes with the release; or a file in LiteLLM's format or that of models.dev.")
    ] = "genai-prices"
    refresh: Annotated[
        Literal["off"] | Duration,
        doc("How often newer prices are fetched. They are only ever fetched where this is set."),
    ] = "off"
    refresh_url: Annotated[
        str,
        doc(
            "Where from: `https`, or `http` on loopback, without user and password. A token may stand in its query "
            "(`?token=…`), which is neither shown nor logged. The formats are those of `arbiter prices import`."
        ),
    ] = "https://raw.githubusercontent.com/pydantic/genai-prices/refs/heads/main/prices/new_data/v2/data.json"
    max_age_s: Annotated[Duration, doc("How old prices may be before `arbiter prices check` fails.")] = field(
        name="max_age", default=60 * 86400.0
    )
    overrides: Annotated[
        list[Override],
        doc("Prices of your own, over all others. The first that fits is used."),
    ] = field(default_factory=list)
    prepaid: Annotated[list[Prepaid], doc("What was paid in advance; `arbiter cost` shows what is left.")] = field(
        default_factory=list
    )
