"""The canonical form and the chain over it: both twins, against each other and against a decoder."""

from __future__ import annotations

import json
import random
from hashlib import sha256

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arbiter._speedups.c import chain as compiled
from arbiter._speedups.py import chain as reference

SEED = bytes(32)
ALL = 1 << 30


@pytest.fixture(params=[reference, compiled], ids=["py", "c"])
def chain(request):
    return request.param


def form_of(chain, text, **how):
    found = chain.form(text if isinstance(text, bytes) else json.dumps(text).encode(), **how)
    return found[0] if found is not None else None


def links_of(chain, inputs):
    return each(chain.fold(json.dumps(inputs).encode(), 0, SEED, ALL).links)


def each(links):
    """Links one by one."""
    return [links[at : at + 32] for at in range(0, len(links), 32)]


# --- the form ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b' { "b" : [ 1 , 2.50 ] , "a" : true } ', b'{"a":true,"b":[1,2.50]}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"b":1,"a":0,"b":2}', b'{"a":0,"b":2}'),
        (b'{"input":{"b":1,"a":0,"b":2}}', b'{"input":{"a":0,"b":2}}'),
        (b'{"schema":{"b":1},"input":{"z":{"y":1,"x":2}}}', b'{"input":{"z":{"y":1,"x":2}},"schema":{"b":1}}'),
        (b'{"response":{"b":1,"a":0},"args":{"b":1,"a":0}}', b'{"args":{"b":1,"a":0},"response":{"b":1,"a":0}}'),
        (
            b'{"parametersJsonSchema":{"b":1,"a":0},"parameters_json_schema":{"d":1,"c":0}}',
            b'{"parametersJsonSchema":{"b":1,"a":0},"parameters_json_schema":{"d":1,"c":0}}',
        ),
        (
            b'{"responseJsonSchema":{"b":1,"a":0},"response_json_schema":{"d":1,"c":0},"argss":{"b":1,"a":0}}',
            b'{"argss":{"a":0,"b":1},"responseJsonSchema":{"b":1,"a":0},"response_json_schema":{"d":1,"c":0}}',
        ),
        (b'{"role":"user","content":"x"}', b'{"content":[{"text":"x","type":"text"}],"role":"user"}'),
        (b'{"input":{"content":"x"}}', b'{"input":{"content":"x"}}'),
        (b'{"cache_control":{"type":"ephemeral"},"a":1}', b'{"a":1}'),
        (b'{"a":1,"prompt_cache_breakpoint":true}', b'{"a":1}'),
        (b'{"cache_control":null}', b"{}"),
        (b'{"input":{"cache_control":1}}', b'{"input":{"cache_control":1}}'),
        (b'["\\u0041\\/\\u000A\\u001F\\u0022\\u005c\\u00e9\\u20ac"]', '["A/\\n\\u001f\\"\\\\é€"]'.encode()),
        (b'"\\ud83c\\udf0d \\uD83C \\udf0d\\ud83c"', '"🌍 \\ud83c \\udf0d\\ud83c"'.encode()),
        (b'"\\\\u0041\\\\/"', b'"\\\\u0041\\\\/"'),
        (b'"\\u12\\uzzzz"', b'"\\u12\\uzzzz"'),
        (b'{"\\u0061":1,"a":2}', b'{"a":2}'),
        (b'{"ab":1,"a":2,"a!":3}', b'{"a":2,"a!":3,"ab":1}'),
        (b"[]", b"[]"),
        (b"[ ]", b"[]"),
        (b"{ }", b"{}"),
        (b"-1.0E5", b"-1.0E5"),
    ],
)  # fmt: skip
def test_a_value_has_one_form(chain, text, expected):
    """However it is spelled; what a form is made of is spelled the same way again."""
    assert form_of(chain, text) == expected
    assert form_of(chain, expected) == expected


def test_a_bare_string_is_a_block_of_text_where_content_stands(chain):
    """Agents send a message as a string once its cache mark has gone, and as a block while it bears one."""
    block = [{"type": "text", "text": "x"}]
    assert form_of(chain, "x", is_content=True) == form_of(chain, block, is_content=True) == form_of(chain, block)
    result = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
    assert form_of(chain, {"content": [result]}) == form_of(chain, {"content": [{**result, "content": block}]})
    assert form_of(chain, "x") == b'"x"'


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"{", b"[", b'"', b'"\\', b'"\\"', b"[1", b"[1,", b"[,]", b"[1,]", b'{"a"', b'{"a":', b'{"a":1',
     b'{"a":1,', b'{"a":1,}', b"{1:2}", b'{"a" 1}', b"[1 2]", b"}", b"]", b",", b":", b'{"cache_control":',
     b'{"a":1]', b"[1}", b"[" * 500, b'{"a":' * 500],
)  # fmt: skip
def test_what_is_no_json_has_no_form(chain, text):
    """And nothing is raised for it."""
    assert chain.form(text) is None
    assert chain.fold(b"[1," + text, 0, SEED, ALL) is None


def test_what_stands_too_deep_stays_as_it_is_spelled(chain):
    """Nobody recurses further than `DEEP` levels."""
    inside = b'{ "b":1, "a":"]}\\"", "cache_control":2 }'
    text = b"[" * chain.DEEP + inside + b"]" * chain.DEEP
    assert form_of(chain, text) == text
    shallower = b"[" * (chain.DEEP - 1) + inside + b"]" * (chain.DEEP - 1)
    assert form_of(chain, shallower) == b"[" * (chain.DEEP - 1) + b'{"a":"]}\\"","b":1}' + b"]" * (chain.DEEP - 1)
    assert form_of(chain, b"[" * 100_000 + b"]" * 100_000) is not None


@pytest.mark.parametrize("count", [2, 15, 16, 17, 31, 64, 1000])
def test_any_number_of_members_is_put_in_order(chain, count):
    """Few are sorted in another way than many; of repeated ones the last counts in both."""
    names = [f"n{n:04}" for n in range(count)]
    shuffled = names * 2
    random.Random(count).shuffle(shuffled)
    last = {name: at for at, name in enumerate(shuffled)}
    text = "{" + ",".join(f'"{name}":{at}' for at, name in enumerate(shuffled)) + "}"
    assert (
        form_of(chain, text.encode())
        == json.dumps({name: last[name] for name in names}, separators=(",", ":")).encode()
    )
    kept = ",".join(f'"{name}":{at}' for at, name in enumerate(shuffled) if last[name] == at)
    assert form_of(chain, f'{{"input":{text}}}'.encode()) == f'{{"input":{{{kept}}}}}'.encode()


leaves = (
    st.text(max_size=40)
    | st.text(alphabet='"\\/\n\u00e9\u0001\U0001f30d', max_size=40)
    | st.integers()
    | st.booleans()
    | st.none()
)
names = st.sampled_from(
    ["role", "type", "content", "text", "input", "id", "cache_control", "schema", "a", "é", ""]
) | st.text(max_size=4)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5), max_leaves=20
)


def spelled(name):
    return json.dumps(name, ensure_ascii=False)[1:-1].encode()


def expected_form(value, *, opaque=False, is_content=False):
    """The form, by way of decoded values."""
    if isinstance(value, dict):
        names = value
        if not opaque:
            names = [name for name in sorted(value, key=spelled) if name.encode() not in reference.MARKS]
        return {
            name: expected_form(
                value[name], opaque=opaque or name.encode() in reference.OPAQUE, is_content=name == "content"
            )
            for name in names
        }
    if isinstance(value, list):
        return [expected_form(v, opaque=opaque) for v in value]
    if isinstance(value, str) and is_content and not opaque:
        return [{"text": value, "type": "text"}]
    return value


def respelled(value, draw):
    """The same value in another spelling."""
    if isinstance(value, dict):
        blank = draw(st.sampled_from(["", " ", "\n\t"]))
        members = [f"{respelled(k, draw)}{blank}:{blank}{respelled(v, draw)}" for k, v in value.items()]
        return "{" + blank + f"{blank},{blank}".join(members) + blank + "}"
    if isinstance(value, list):
        blank = draw(st.sampled_from(["", " ", "\r\n"]))
        return "[" + blank + f",{blank}".join(respelled(v, draw) for v in value) + blank + "]"
    if isinstance(value, str) and value.isascii() and draw(st.booleans()):
        return '"' + "".join(f"\\u{ord(c):04X}" for c in value) + '"'
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@settings(deadline=None, max_examples=300)
@given(values, st.data())
def test_the_form_is_what_a_decoder_would_make_of_it(value, data):
    """In whatever spelling: escapes, blanks and the order of known members are none of the prompt."""
    text = respelled(value, data.draw).encode()
    expected = json.dumps(expected_form(value), ensure_ascii=False, separators=(",", ":")).encode()
    assert form_of(reference, text) == form_of(compiled, text) == expected


PIECES = [b"[", b"]", b"{", b"}", b'"', b'"a"', b'"role"', b'"content":', b'"input":{', b'"cache_control":', b":", b",",
          b"\\", b"\\u", b"\\u0041", b"\\ud83c", b"\\udf0d", b"/", b" ", b"x", b"1", b"null", b'"assistant"',
          b'"system"', b"x" * 17, "é".encode(), b"\x00"]  # fmt: skip


@settings(deadline=None, max_examples=1000)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.integers(0, 40))
@example(b'"a":1}', 0)
def test_the_twins_agree_on_whatever_comes(text, at):
    """Also on what is no JSON."""
    assert reference.form(text) == compiled.form(text)
    assert reference.form(text, is_content=True) == compiled.form(text, is_content=True)
    for array in (text, b"[" + text + b"]", b'[{"role":"system",' + text + b"}]"):
        assert reference.lead(array) == compiled.lead(array)
        assert reference.fold(array, 0, SEED, ALL) == compiled.fold(array, 0, SEED, ALL)
        assert reference.fold(array, at, SEED, 2) == compiled.fold(array, at, SEED, 2)
        assert reference.told(array, 1, 0, SEED, ALL) == compiled.told(array, 1, 0, SEED, ALL)
        assert reference.told(array, 1, at, SEED, 2) == compiled.told(array, 1, at, SEED, 2)


@settings(deadline=None, max_examples=200)
@given(st.lists(values, max_size=6), st.integers(0, 5))
def test_the_twins_fold_alike(inputs, most):
    text = json.dumps(inputs).encode()
    assert reference.fold(text, 0, SEED, ALL) == compiled.fold(text, 0, SEED, ALL)
    assert reference.fold(text, 0, SEED, most) == compiled.fold(text, 0, SEED, most)
    assert reference.lead(text) == compiled.lead(text)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.sampled_from([b"x", b"x" * 15, b"x" * 16, b'\\"', b"\\\\", b"\\n", b"\\/", b"\\u0041"]), max_size=40
    ).map(b"".join)
)
def test_strings_longer_than_one_look_are_copied_whole(text):
    """Sixteen bytes are copied in one go; what a backslash escapes may be the first of the next ones."""
    assert form_of(reference, b'"%b"' % text) == form_of(compiled, b'"%b"' % text)
    assert (
        form_of(compiled, b'"%b"' % text) == text.join((b'"', b'"')).replace(b"\\/", b"/").replace(b"\\u0041", b"A")
        or b"\\\\" in text
    )


# --- the chain --------------------------------------------------------------------------------------------------------


def test_a_link_is_the_hash_of_the_link_before_and_the_form(chain):
    """So whoever has the rows and a conversation can make the hashes himself."""
    first = sha256(SEED + b'{"content":[{"text":"a","type":"text"}],"role":"user"}').digest()
    second = sha256(first + b'{"content":[],"role":"assistant"}').digest()
    folded = chain.fold(b' [ {"role":"user","content":"a"} , {"role":"assistant","content":[]}] ', 0, SEED, ALL)
    assert folded.links == first + second
    assert folded.produced == b"\0\1" and folded.is_over


def test_a_chain_goes_on_from_wherever_it_was_left(chain):
    """Which is all that resuming is."""
    text = json.dumps([{"role": "user", "content": str(n)} for n in range(9)]).encode()
    whole = chain.fold(text, 0, SEED, ALL)
    assert [text[:end][-1:] for end in whole.ends] == [b"}"] * 9
    for k in range(10):
        before = chain.fold(text, 0, SEED, k)
        assert (before.links, before.is_over) == (whole.links[: 32 * k], k == 9)
        rest = chain.fold(text, before.ends[-1] if k else 0, before.links[-32:] if k else SEED, ALL)
        assert (rest.ends, rest.links, rest.is_over) == (whole.ends[k:], whole.links[32 * k :], True)


@pytest.mark.parametrize(
    ("input_", "produced"),
    [
        ({"role": "assistant"}, True),
        ({"role": "model"}, True),
        ({"role": "user", "type": "function_call"}, False),
        ({"role": "tool", "content": "x"}, False),
        ({"role": "user", "role ": "assistant"}, False),
        ({"type": "message", "role": "assistant"}, True),
        ({"type": "reasoning"}, True),
        ({"type": "function_call"}, True),
        ({"type": "web_search_call"}, True),
        ({"type": "function_call_output"}, False),
        ({"type": "item_reference"}, True),
        ({"type": ["function_call"]}, False),
        ("assistant", False),
        ([{"role": "assistant"}], False),
        ({}, False),
    ],
)
def test_what_the_model_wrote_is_told_by_role_or_kind(chain, input_, produced):
    assert chain.fold(json.dumps([input_]).encode(), 0, SEED, ALL).produced == bytes([produced])


def test_of_two_roles_the_last_one_counts(chain):
    assert chain.fold(b'[{"role":"user","role":"assistant"}]', 0, SEED, ALL).produced == b"\1"


def test_marks_are_told_by_place_and_value(chain):
    """Of the messages, of their blocks, and of blocks in these; what a tool is called with bears none."""
    mark = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": mark}]
    result = {"type": "tool_result", "content": [{"text": "c", "cache_control": {"ttl": "1h"}}]}
    inputs = [
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": [{"type": "tool_use", "input": {"cache_control": 1}}], "cache_control": None},
        {"role": "user", "content": [result]},
        {"role": "user", "content": "d", "prompt_cache_breakpoint": True},
    ]
    text = json.dumps(inputs).encode()
    assert chain.fold(text, 0, SEED, ALL).marks == [
        ((0, 1), b'{"type": "ephemeral"}'),
        ((2, 0, 0), b'{"ttl": "1h"}'),
        ((3,), b"true"),
    ]
    many = json.dumps([{"a": [[[[[{"cache_control": 1}] * 9]]]]}] * 100).encode()
    marks = chain.fold(many, 0, SEED, ALL).marks
    assert len(marks) == chain.MOST_MARKS and marks[9] == ((1, 0, 0, 0), b"1")


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=8), st.integers(0, 7), values)
def test_an_edit_shows_from_its_input_on(inputs, at, other):
    """Every link before it stays, and no later one does."""
    at %= len(inputs)
    edited = [*inputs[:at], other, *inputs[at + 1 :]]
    same = expected_form(inputs[at]) == expected_form(other) and repr(inputs[at]) == repr(other)
    before, after = links_of(compiled, inputs), links_of(compiled, edited)
    assert before[:at] == after[:at]
    assert same or form_of(compiled, inputs[at]) == form_of(compiled, other) or not set(before[at:]) & set(after[at:])


def test_instructions_lead_until_somebody_else_speaks(chain):
    """They are the head's; one in the middle of a conversation is an input like others (Claude Code sends such)."""
    inputs = [
        {"role": "system", "content": "a"},
        {"content": "b", "role": "developer"},
        {"role": "user"},
        {"role": "system"},
    ]
    text = json.dumps(inputs).encode()
    led = chain.lead(text)
    assert led.forms == [b'{"content":[{"text":"a","type":"text"}],"role":"system"}',
                         b'{"content":[{"text":"b","type":"text"}],"role":"developer"}']  # fmt: skip
    assert [json.loads(text[:end] + b"]") for end in led.ends] == [inputs[:1], inputs[:2]]
    assert chain.lead(b"[]").ends == chain.lead(b'[{"role":"user"}]').ends == chain.lead(b'["system"]').ends == []
    marked = chain.lead(b'[{"role":"system","content":[{"type":"text","cache_control":{}}]}]')
    assert marked.marks == [((0, 0), b"{}")]
    assert chain.lead(b'{"role":"system"}') is None


@settings(deadline=None, max_examples=300)
@given(st.lists(st.booleans(), max_size=120).map(bytes) | st.integers(0, 600).map(bytes))
def test_what_is_kept_is_what_the_specification_says(produced):
    """Every 16th position, the last four, and those before the last four runs that a model wrote (SPEC 7.4)."""
    count = len(produced)
    links = b"".join(sha256(bytes([at & 255, at >> 8])).digest() for at in range(count))
    runs = [at for at in range(count) if produced[at] and (at == 0 or not produced[at - 1])][-4:]
    wanted = sorted({*range(16, count + 1, 16), *range(count - 3, count + 1), *runs})
    expected = [f"{at}:{links[32 * at - 32 :][:6].hex()}" for at in wanted if at > 0]
    assert reference.kept(links, produced) == compiled.kept(links, produced) == expected


# --- the whole of a short one -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(st.lists(values, max_size=20), st.integers(0, 3), st.integers(0, 22))
def test_what_is_told_of_a_row_is_what_its_links_say(inputs, led, most):
    """One call for what takes three otherwise: hash the inputs, join their links to the head's, keep some of them."""
    text, link = json.dumps(inputs).encode(), sha256(b"head").digest()
    folded = reference.fold(text, 0, link, most)
    expected = None
    if folded.is_over:
        links = link * led + folded.links
        marks = [((led + places[0], *places[1:]), value) for places, value in folded.marks]
        words = reference.kept(links, bytes(led) + folded.produced)
        expected = led + len(inputs), words, marks, links[-32:][:6].hex()
    assert reference.told(text, led, 0, link, most) == compiled.told(text, led, 0, link, most) == expected


def test_what_is_told_begins_behind_the_instructions(chain):
    """They are the head's: their links are its own, and the marks behind them count from the first of all."""
    led = b'[{"role":"system","content":"Be brief."}'
    said = b'{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}'
    link = sha256(b"head").digest()
    count, words, marks, last = chain.told(led + b"," + said + b"]", 1, len(led), link, ALL)
    behind = sha256(link + form_of(chain, said)).digest()[:6].hex()
    assert (count, words, last) == (2, [f"1:{link[:6].hex()}", f"2:{behind}"], behind)
    assert marks == [((1, 0), b'{"type":"ephemeral"}')]


@pytest.mark.parametrize("text", [b"", b"[", b"[{}", b'[{"a":}]', b"{}", b'[{},"x]'])
def test_of_what_is_no_json_nothing_is_told(chain, text):
    assert chain.told(text, 0, 0, SEED, ALL) is None
