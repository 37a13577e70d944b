"""Why a cache was lost: each cause by itself, which of two goes first, what a loss is and what it cost."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from arbiter.accounting.caches import Cache
from arbiter.config.rates import Rate
from arbiter.ledger import losses
from arbiter.ledger.losses import judge
from tests.fakes.histories import call, turns

CACHE = Cache(floor=8192, minimum=1024, ttl_s=300.0)
BEFORE = {"input_tokens": 10, "cached_tokens": 50_000, "cache_write_tokens": 2_000}
COLD = {"input_tokens": 20, "cached_tokens": 0, "cache_write_tokens": 54_000}
WARM = {"input_tokens": 20, "cached_tokens": 52_000, "cache_write_tokens": 2_000}

OPENAI = {
    "provider": "openai",
    "format_out": "openai-chat",
    "model_asked": "gpt-5.2",
    "model_served": "gpt-5.2",
    "cache_marks": [],
}


def before(**fields):
    return call(0, turns(9), **(BEFORE | fields))


def now(minutes=1.0, inputs=None, **fields):
    return call(minutes, turns(11) if inputs is None else inputs, **(COLD | fields))


def cause(one, other, cache=CACHE, **how):
    found = judge(one, other, cache, **how)
    return found and found.cause


def test_what_was_left_and_read_is_no_loss():
    """A call leaves what it read and what it wrote, and the next one reads all of it."""
    assert judge(before(), call(1, turns(11), **WARM), CACHE) is None


def test_a_provider_that_forgot_is_a_miss():
    """Nothing differs, and everything that was left is gone."""
    assert judge(before(), now(), CACHE) == ("miss", 52_000, None, None)


def test_a_provider_that_forgot_a_part_lost_that_part():
    assert judge(before(), now(cached_tokens=30_000, cache_write_tokens=24_000), CACHE) == ("miss", 22_000, None, None)


def test_where_no_writes_are_reported_the_whole_prompt_was_left():
    one = before(input_tokens=12_000, cached_tokens=38_000, cache_write_tokens=None, **OPENAI)
    two = now(input_tokens=52_000, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    assert judge(one, two, CACHE) == ("miss", 50_000, None, None)


def test_a_rewritten_turn_is_drift_and_says_where():
    """The first position that both kept and that differs; what changed stands between it and the last that agrees."""
    changed = turns(11)
    changed[2] = "u2, but otherwise"
    assert judge(before(), now(inputs=changed), CACHE) == ("drift", 52_000, 3, "messages 1-3")
    later = turns(11)
    later[8] = "u8, but otherwise"
    assert judge(before(), now(inputs=later), CACHE) == ("drift", 52_000, 9, "message 9")


def test_a_turn_rewritten_far_back_is_found_within_sixteen():
    one = call(0, turns(41), **BEFORE)
    changed = turns(43)
    changed[20] = "u20, but otherwise"
    assert judge(one, now(inputs=changed), CACHE) == ("drift", 52_000, 32, "messages 17-32")


@pytest.mark.parametrize("missing", ["chain", "positions"])
def test_without_anything_to_compare_it_is_undetermined(missing):
    """No chain, or none with a position of the other's: nobody can say whose doing it was."""
    one = before(input_chain=None) if missing == "chain" else call(0, turns(3), **BEFORE)
    two = now() if missing == "chain" else call(1, turns(60), **COLD)
    assert cause(one, two) == "undetermined"


def test_lengths_without_a_chain_say_nothing():
    """A request that stands on an earlier answer by its id sends only what is new."""
    assert cause(before(input_chain=None), now(inputs=turns(1), input_chain=None)) == "undetermined"


CAUSES = {
    "model": ({}, {"model_asked": "claude-opus-4-1", "model_served": "claude-opus-4-1"}),
    "account": ({"account": "team-a"}, {"account": "team-b"}),
    "tools": ({}, {"tools": "read, write, search"}),
    "system": ({}, {"system": "You are an agent. It is Tuesday."}),
    "effort": ({"effort": "low"}, {"effort": "high"}),
    "settings": ({"settings_hash": "a"}, {"settings_hash": None}),
    "rewrite": ({}, {"projection_hash": "1" * 12, "replaced": 5}),
    "idle": ({}, {"minutes": 5}),
    "cleared": ({}, {"cleared_tokens": 50_000}),
    "marks": ({}, {"cache_marks": [], "cache_write_tokens": 0, "input_tokens": 54_000}),
}


@pytest.mark.parametrize("expected", CAUSES)
def test_what_explains_a_loss_is_kept_as_its_reason(expected):
    first, second = CAUSES[expected]
    assert cause(before(**first), now(**second)) == expected


def test_what_is_cleared_as_before_explains_nothing():
    """The provider clears the same results from each prompt that still holds them, and so it fits what is cached."""
    same = {"cleared_tokens": 50_000}
    assert cause(before(**same), now(**same)) == "miss"
    assert cause(before(**same), now(cleared_tokens=70_000)) == "cleared"
    assert cause(before(**same), now()) == "cleared"  # and no longer clears anything
    assert cause(before(), now(cleared_tokens=0)) == "cleared"  # it does not say how much


def test_what_the_provider_compacted_explains_the_calls_beside_it():
    """The one whose answer brought the compaction, and the one after it; from there on the prompt is as it was."""
    assert cause(before(), now()) == "miss"
    assert cause(before(compacted=True), now()) == cause(before(), now(compacted=True)) == "compaction"
    # A history made anew of what was handed back, also where it begins like the old one.
    for new in (turns(3), [f"handed back {number}" for number in range(60)]):
        assert cause(before(compacted=True), now(inputs=new)) == "compaction"


def test_tools_that_are_gone_are_other_tools():
    """A request without any has no hash of them, which is not the same as not knowing it."""
    assert cause(before(), now(tools_hash=None)) == "tools"
    assert cause(before(), now(tools_hash=None, head_hash=None, input_chain=None)) == "undetermined"


def test_an_edit_that_goes_on_as_before_is_no_rewrite():
    """The gateway edits new inputs as it edited those before: what it had sent stays as it was."""
    one, two = {"projection_hash": "0" * 12, "replaced": 4}, {"projection_hash": "1" * 12, "replaced": 5}
    assert cause(before(**one), now(**two)) == "miss"
    assert cause(before(), now(**(two | {"replaced": 2}))) == "miss"
    assert cause(before(**one), now(**(two | {"replaced": 7}))) == "rewrite"
    assert cause(before(**one), now()) == "rewrite"
    assert cause(before(), now(**(two | {"replaced": 0}))) == "rewrite"  # instructions or tools


def test_another_provider_is_another_account():
    assert cause(before(), now(provider="bedrock")) == "account"


def test_the_part_of_the_prompt_is_told():
    assert judge(before(), now(tools="none"), CACHE).within == "tools"
    assert judge(before(), now(system="another"), CACHE).within == "system"


def test_a_model_is_known_by_the_name_it_gives_itself():
    """An alias that the provider resolves is no other model; a router's other choice under one name is."""
    assert cause(before(), now(model_asked="claude-sonnet-4-5-20250929")) == "miss"
    assert cause(before(), now(model_served="claude-haiku-4-5")) == "model"
    assert cause(before(model_served=None), now(model_asked="claude-haiku-4-5")) == "model"


def test_instructions_among_the_inputs_are_no_history():
    """Chat's system message is an input like others; that it agrees says nothing of what was said."""
    one, two = before(), now(inputs=["u: so far", "a", "u"])
    lead = f"1:{one.head_hash[:12]}"
    one = msgspec.structs.replace(one, input_chain=[lead, *one.input_chain])
    two = msgspec.structs.replace(two, input_chain=[lead, "2:000000000000", "3:111111111111"])
    assert cause(one, two) == "compaction"


def test_going_back_is_a_rewind():
    """The history is no longer than before, and agrees with it up to a point."""
    back = [*turns(6), "u6, but otherwise"]
    assert cause(before(), now(inputs=back, input_tokens=20, cache_write_tokens=30_000)) == "rewind"


def test_a_rewind_costs_no_more_than_the_shorter_prompt():
    """What a shorter prompt no longer holds is no loss: nobody paid for it."""
    back = [*turns(6), "u6, but otherwise"]
    found = judge(before(), now(inputs=back, input_tokens=20, cached_tokens=1000, cache_write_tokens=30_000), CACHE)
    assert found.tokens == 30_020
    warm = now(inputs=back, input_tokens=20, cached_tokens=29_000, cache_write_tokens=1_000)
    assert judge(before(), warm, CACHE) is None


def test_a_new_beginning_is_a_compaction():
    """The history is no longer than before, and shares nothing with it."""
    compacted = ["u: what happened so far", "a ok", "u2"]
    assert cause(before(), now(inputs=compacted)) == "compaction"


def test_a_rewind_to_the_beginning_is_none():
    """A long history keeps no hash of its first inputs; the calls that made them do."""
    one = call(20, turns(41), **BEFORE)
    back = [*turns(2), "u2, but otherwise"]
    assert cause(one, now(21, back)) == "compaction"
    assert cause(one, now(21, back), earlier=[call(0, turns(3), **BEFORE)]) == "rewind"


def test_an_agent_that_says_it_compacted_is_believed():
    """Also where the history did not become shorter, or the summary stands in the instructions."""
    longer = ["u: what happened so far", *turns(12)]
    assert cause(before(), now(inputs=longer)) == "drift"
    assert cause(before(), now(inputs=longer), is_compacted=True) == "compaction"
    assert cause(before(), now(inputs=longer, system="So far: …"), is_compacted=True) == "compaction"


def test_the_call_that_compacts_has_the_whole_history_before_it():
    """It reads what was left like any other, and a provider that forgot is one."""
    assert cause(before(), now(), is_compacted=True) == "miss"


def test_the_same_request_again_is_no_rewind():
    assert cause(before(), now(inputs=turns(9))) == "miss"


def test_the_mark_says_how_long_a_cache_lasts():
    """Idle is as long as the mark asked for, to the millisecond, from when the cache was last used."""
    hour = {"cache_marks": ["tools:3@1h", "system:1@1h", "message:8.0@1h"]}
    assert cause(before(**hour), now(59)) == "miss"
    assert cause(before(**hour), now(60)) == "idle"
    assert cause(before(), now(4.999)) == "miss"
    assert cause(before(cache_marks=None), now(5)) == "idle"
    assert cause(before(cache_marks=["message:8.0"]), now(4)) == "miss"  # a mark that names no time


def test_a_whole_request_may_ask_for_a_time():
    day = {
        "cache_marks": ["request@24h"],
        "cache_write_tokens": None,
        **{k: v for k, v in OPENAI.items() if k != "cache_marks"},
    }
    assert cause(before(**day), now(23 * 60, **(day | {"input_tokens": 54_000}))) == "miss"
    assert cause(before(**day), now(24 * 60, **(day | {"input_tokens": 54_000}))) == "idle"


def test_a_provider_without_marks_has_a_time_of_its_own():
    one = before(input_tokens=12_000, cached_tokens=38_000, cache_write_tokens=None, **OPENAI)
    two = now(10, input_tokens=52_000, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    assert cause(one, two, CACHE._replace(ttl_s=1800)) == "miss"
    assert cause(one, two, CACHE._replace(ttl_s=600)) == "idle"


def test_a_cold_predecessor_left_nothing_for_certain():
    """A provider that reports no writes, and read nothing: what it kept, nobody knows."""
    one = before(input_tokens=50_000, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    two = now(input_tokens=52_000, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    assert cause(one, two) == "cold_predecessor"
    changed = ["u0, but otherwise", *turns(11)[1:]]
    assert cause(one, call(1, changed, **OPENAI, input_tokens=52_000, cached_tokens=0)) == "drift"


def test_a_first_call_that_wrote_is_none():
    assert cause(before(cached_tokens=0, cache_write_tokens=52_000), now()) == "miss"


def test_a_call_that_left_nothing_is_followed_by_no_loss():
    assert judge(before(cached_tokens=0, cache_write_tokens=0), now(), CACHE) is None


def test_a_prompt_too_short_to_be_cached_is_no_miss():
    """Below the model's minimum a zero is what one has to expect."""
    one = before(input_tokens=3000, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    two = now(input_tokens=3100, cached_tokens=0, cache_write_tokens=None, **OPENAI)
    assert cause(one, two, Cache(floor=1024, minimum=4096)) == "below_minimum"
    assert cause(one, two, Cache(floor=1024, minimum=1024)) == "cold_predecessor"
    wrote = before(input_tokens=10, cached_tokens=0, cache_write_tokens=3000)
    again = now(input_tokens=10, cache_write_tokens=3100)
    assert cause(wrote, again, Cache(floor=1024, minimum=4096)) == "miss"  # it was long enough, as one sees


def test_ten_parallel_calls_are_too_far_for_one_mark():
    """Anthropic looks twenty blocks back from a mark: ten calls and their ten results stand between."""
    assert cause(before(tool_names=["read"] * 9), now()) == "miss"
    far = {"cache_marks": ["system:1@5m", "message:10.9@5m"]}
    assert cause(before(tool_names=["read"] * 10), now(**far)) == "marks"
    near = {"cache_marks": ["system:1@5m", "message:8.0@5m", "message:10.9@5m"]}
    assert cause(before(tool_names=["read"] * 10), now(**near)) == "miss"
    assert cause(before(tool_names=["read"] * 10, **OPENAI), now(**OPENAI)) == "miss"


THOUGHTFUL = [call(-1, turns(7), tool_names=["read"], thinking_bytes=900, **BEFORE)]
"""The call before the call before: it thought, and called a tool, whose result the other one had."""


def test_thoughts_that_leave_the_prompt_are_no_miss():
    """Some models forget what they thought once the user speaks again; the provider did not forget."""
    drops = CACHE._replace(drops_thinking=True)
    assert cause(before(), now(), drops, earlier=THOUGHTFUL) == "thinking"
    assert cause(before(), now(), CACHE, earlier=THOUGHTFUL) == "miss"
    assert cause(before(tool_names=["read"]), now(), drops, earlier=THOUGHTFUL) == "miss"  # the turn goes on
    silent = [call(-1, turns(7), tool_names=["read"], **BEFORE)]
    single = [call(-1, turns(7), thinking_bytes=900, **BEFORE)]
    assert {cause(before(), now(), drops, earlier=one) for one in (silent, single, [])} == {"miss"}


PRECEDENCE = (
    ("below_minimum", "model"),
    ("model", "compaction"),
    ("compaction", "tools"),
    ("tools", "system"),
    ("system", "account"),
    ("account", "effort"),
    ("effort", "settings"),
    ("settings", "rewrite"),
    ("rewrite", "rewind"),
    ("rewind", "idle"),
    ("idle", "marks"),
    ("marks", "cleared"),
    ("cleared", "thinking"),
    ("thinking", "cold_predecessor"),
    ("cleared", "drift"),
    ("drift", "cold_predecessor"),
)


@pytest.mark.parametrize(("first", "second"), PRECEDENCE)
def test_of_two_causes_the_first_of_the_list_is_told(first, second):
    """Each cause against the next in the order that is documented."""
    shapes = CAUSES | {
        "below_minimum": ({"input_tokens": 3000, "cached_tokens": 0, "cache_write_tokens": None}, {}),
        "compaction": ({}, {"inputs": ["u so far", "a", "u"], "is_compacted": True}),
        "rewind": ({}, {"inputs": [*turns(6), "u6, but otherwise"]}),
        "thinking": ({}, {"earlier": THOUGHTFUL}),
        "drift": ({}, {"inputs": ["u0, but otherwise", *turns(11)[1:]]}),
        "cold_predecessor": ({"input_tokens": 52_000, "cached_tokens": 0, "cache_write_tokens": None}, {}),
    }
    old = {**shapes[second][0], **shapes[first][0]}
    new = {**shapes[second][1], **shapes[first][1]}
    how = {"is_compacted": new.pop("is_compacted", False), "earlier": new.pop("earlier", ())}
    cache = Cache(1024, 4096) if first == "below_minimum" else CACHE._replace(drops_thinking=True)
    assert cause(before(**old), now(**new), cache, **how) == first


def test_the_order_tested_is_the_whole_order():
    found = list(dict.fromkeys(first for first, _ in PRECEDENCE))
    assert (*found, "cold_predecessor", "miss", "undetermined") == losses.CAUSES


def test_a_small_loss_is_none():
    """Neither below the floor nor up to a twentieth of the prompt: providers read in blocks."""
    just = now(cached_tokens=52_000 - 8192, cache_write_tokens=10_192)
    assert judge(before(), just, CACHE).tokens == 8192
    assert judge(before(), now(cached_tokens=52_000 - 8191, cache_write_tokens=10_191), CACHE) is None
    large = before(cached_tokens=200_000, cache_write_tokens=0)
    assert judge(large, now(input_tokens=0, cached_tokens=190_000, cache_write_tokens=10_000), CACHE) is None
    assert judge(large, now(input_tokens=0, cached_tokens=189_999, cache_write_tokens=10_001), CACHE).tokens == 10_001


@pytest.mark.parametrize("unknown", ["cached_tokens", "input_tokens"])
def test_what_was_not_reported_is_not_lost(unknown):
    """A count that nobody stated is no zero."""
    assert judge(before(), now(**{unknown: None}), CACHE) is None


def test_where_nobody_told_the_conversation_a_difference_proves_little():
    """A slot that was guessed may hold two conversations. That they are one is shown by what they share, or by their
    lengths: a changed beginning leaves nothing else."""
    one, unlike = before(session=None), turns(31, "other")
    assert judge(one, now(inputs=unlike, session=None), CACHE) is None
    assert cause(before(), now(inputs=unlike)) == "undetermined"
    assert cause(one, now(session=None)) == "miss"
    assert cause(one, now(inputs=unlike[:11], session=None)) == "drift"
    assert judge(one, now(inputs=unlike[:9], session=None), CACHE) is None
    changed = turns(13)
    changed[8] = "u8, but otherwise"
    assert cause(one, now(inputs=changed, session=None)) == "drift"
    parallel = [*unlike[:9], "a", *["u"] * 9]  # chat: each result is an input of its own
    chat = {"session": None, "tool_names": ["read"] * 9, **OPENAI}
    assert cause(before(**chat), now(inputs=parallel, **chat)) == "drift"
    assert judge(before(**(chat | {"tool_names": None})), now(inputs=parallel, **chat), CACHE) is None


def test_questions_that_stand_by_themselves_are_no_conversation():
    """Titles of one session have one prompt and share nothing: none of them is the other's compaction, or drift."""
    one = call(0, ["u: name this"], **BEFORE)
    assert judge(one, now(inputs=["u: name that"]), CACHE) is None
    assert judge(one, now(inputs=["u: name that", "u: and this"]), CACHE) is None
    assert cause(one, now(inputs=["u: name that", "a", "u"])) == "drift"
    assert cause(one, now(inputs=["u: so far"]), is_compacted=True) == "compaction"


RATE = Rate(input=3_000_000, cached_input=300_000, cache_write_5m=3_750_000, cache_write_1h=6_000_000)


def test_what_was_written_again_costs_the_price_of_writing():
    """Beyond what reading would have cost."""
    assert losses.lost_pd(now(), 52_000, RATE) == 52_000 * (3_750_000 - 300_000)
    assert losses.lost_pd(now(cache_write_1h_tokens=54_000), 52_000, RATE) == 52_000 * (6_000_000 - 300_000)


def test_what_was_not_written_again_costs_the_price_of_input():
    assert losses.lost_pd(now(input_tokens=54_000, cache_write_tokens=0), 52_000, RATE) == 52_000 * 2_700_000
    half = now(input_tokens=34_000, cache_write_tokens=20_000)
    assert losses.lost_pd(half, 52_000, RATE) == 20_000 * 3_450_000 + 32_000 * 2_700_000


def test_a_tier_goes_by_the_whole_prompt():
    dear = Rate(input=6_000_000, cached_input=600_000, cache_write_5m=7_500_000)
    tiered = Rate(input=3_000_000, cached_input=300_000, cache_write_5m=3_750_000, tiers=((50_000, dear),))
    assert losses.lost_pd(now(), 52_000, tiered) == 52_000 * 6_900_000


@pytest.mark.parametrize("unknown", ["cached_input", "cache_write_5m"])
def test_a_price_that_nobody_knows_makes_no_dollars(unknown):
    known = {name: price for name, price in RATE.items() if name != unknown}
    assert losses.lost_pd(now(), 52_000, Rate(**known)) is None
    assert losses.lost_pd(now(), 52_000, None) is None


def test_every_cause_is_documented_in_its_order():
    text = (Path(__file__).resolve().parents[3] / "docs" / "ledger.md").read_text()
    section = text.split("## Cache losses\n")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == losses.CAUSES
