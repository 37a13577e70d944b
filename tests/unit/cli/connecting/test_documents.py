"""Settings files, edited in place: what an edit must not touch, and what comes back when it is taken back."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arbiter.cli.connecting.documents import FORMATS, edited, is_empty, reverted
from arbiter.cli.connecting.tree import MISSING, Broken, Misfit, Named, Place, drop, lookup, put, same

KEY = ("env", "KEY")


# ---------------------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "env": {\n    "KEY": "v"\n  }\n}\n'),
        ("{}", '{\n  "env": {\n    "KEY": "v"\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "env": {"KEY": "v"}}'),
        ('{"a": 1,}', '{"a": 1, "env": {"KEY": "v"}}'),
        ('{\n\t"a": 1\n}\n', '{\n\t"a": 1,\n\t"env": {\n\t\t"KEY": "v"\n\t}\n}\n'),
        ('{\r\n  "a": 1\r\n}', '{\r\n  "a": 1,\r\n  "env": {\r\n    "KEY": "v"\r\n  }\r\n}'),
        ('{\n    "env": {"A": 1} // mine\n}', '{\n    "env": {"A": 1, "KEY": "v"} // mine\n}'),
        ('{\n  "a": 1 // one\n  // end\n}', '{\n  "a": 1, // one\n  // end\n  "env": {\n    "KEY": "v"\n  }\n}'),
        ('{\n  "env": {\n    "A": 1, // one\n  },\n}', '{\n  "env": {\n    "A": 1, // one\n    "KEY": "v",\n  },\n}'),
        ('{"env": null}', '{"env": {\n  "KEY": "v"\n}}'),
        ('{"env": {"KEY": "old", "B": 2}}', '{"env": {"KEY": "v", "B": 2}}'),
        ('{"env": {"KEY": 1, "KEY": 2}}', '{"env": {"KEY": 1, "KEY": "v"}}'),
        ('// only this\n', '// only this\n{\n  "env": {\n    "KEY": "v"\n  }\n}\n'),
        ('\ufeff{"a": 1}', '\ufeff{"a": 1, "env": {"KEY": "v"}}'),
    ],
)  # fmt: skip
def test_a_member_is_written_as_its_neighbours_are(before: str, after: str) -> None:
    """Indentation, line ends, comments and trailing commas of the file are kept, and followed."""
    assert edited("json", before, [(KEY, "v")]) == after
    assert edited("json", after, [(KEY, "v")]) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"env": {"KEY": 1, "B": 2}}', '{"env": {"B": 2}}'),
        ('{"env": {"A": 1, "KEY": 2}}', '{"env": {"A": 1}}'),
        ('{"env": {"KEY": 2}}', '{"env": {}}'),
        ('{"env": {"A": 1, "KEY": 2,}}', '{"env": {"A": 1, }}'),
        ('{"env": {\n  "A": 1, // a\n  "KEY": 2\n}}', '{"env": {\n  "A": 1 // a\n}}'),
        ('{"env": {\r\n  "KEY": 2,\r\n  "B": 1\r\n}}', '{"env": {\r\n  "B": 1\r\n}}'),
        ('{"env": {\n  "A": 1,\n  "KEY": 2 // k\n}}', '{"env": {\n  "A": 1\n   // k\n}}'),
    ],
)
def test_a_member_goes_with_its_comma_and_nothing_else(before: str, after: str) -> None:
    assert edited("json", before, [(KEY, MISSING)]) == after


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1', "line 1: a comma or } is expected"),
        ('{\n"a" 1}', "line 2: a colon is expected"),
        ("{'a': 1}", "line 1: a string in double quotes is expected"),
        ('{"a": yes}', "line 1: 'yes' is no value"),
        ('{"a": 1}}', "line 1: nothing more is expected"),
        ('{"a": }', "line 1: a value is expected"),
        ('{"a": "\\x"}', "line 1: this is no string"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Broken, match=r"^" + message.replace("}", r"\}")):
        edited("json", text, [(KEY, "v")])


BLANKS = st.sampled_from(["", " ", "\n  ", "\r\n\t", " /* kept */ ", " // kept\n", '\n// kept, "}\n'])
NAMES = st.sampled_from(["env", "KEY", "a", "b\\n", "//", "/*", ""])
SCALARS = st.sampled_from(["1", "-2.5e3", "true", "null", '"x"', '"}//,"', '"\\u00e9"', '"é"'])


@st.composite
def jsonc(draw: st.DrawFn, depth: int = 3) -> str:
    """An object or a list as somebody might have written it."""
    blank = lambda: draw(BLANKS)  # noqa: E731
    is_object = depth == 3 or draw(st.booleans())
    items = []
    for _ in range(draw(st.integers(0, 3))):
        value = draw(jsonc(depth - 1)) if depth > 1 and draw(st.booleans()) else draw(SCALARS)
        key = f'"{draw(NAMES)}"{blank()}:' if is_object else ""
        items.append(f"{blank()}{key}{blank()}{value}{blank()}")
    comma = "," + blank() if items and draw(st.booleans()) else blank()
    return ("{%s}" if is_object else "[%s]") % (",".join(items) + comma)


EDITS: st.SearchStrategy[tuple[Place, Any]] = st.builds(
    lambda keys, edit: ((*keys, *edit[0]), edit[1]),
    st.lists(st.sampled_from(["env", "KEY", "a", "new"]), min_size=1, max_size=3),
    st.sampled_from(
        [
            *(((), value) for value in ("v", "1", "a: b", 1, None, {"KEY": "x", "n": 1}, ["y", {}], [{"id": "m"}])),
            ((Named("id", "m"),), {"id": "m", "roles": ["chat"]}),
            ((Named("KEY", "x"),), {"KEY": "x"}),
        ]
    ),
)


@given(text=jsonc(), edit=EDITS)
def test_an_edit_says_what_it_was_meant_to_and_loses_no_comment(text: str, edit: tuple[Place, Any]) -> None:
    """Whatever the file looks like: it says what it said and the edit besides, or the edit is refused."""
    place, value = edit
    tree = FORMATS["json"].parse(text)
    try:
        wanted = put(tree, place, value)
    except Misfit:
        with pytest.raises(Broken):
            edited("json", text, [(place, value)])
        return
    new = edited("json", text, [(place, value)])
    assert same(FORMATS["json"].parse(new), wanted)
    if lookup(tree, place) in (MISSING, None, 1, True, "x"):  # else comments inside of what is replaced go with it
        assert new.count("kept") == text.count("kept")
    assert edited("json", new, [(place, value)]) == new
    back, kept = reverted("json", new, text, [(place, value)])
    assert same(FORMATS["json"].parse(back), tree) and not kept


@given(text=jsonc(), data=st.data())
def test_what_is_taken_out_leaves_the_rest_as_it_was(text: str, data: st.DataObject) -> None:
    tree = FORMATS["json"].parse(text)
    if not tree:
        return
    place: Place = (data.draw(st.sampled_from(sorted(tree))),)
    new = edited("json", text, [(place, MISSING)])
    assert same(FORMATS["json"].parse(new), drop(tree, place))


# ---------------------------------------------------------------------------------------------------------------- YAML


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "model: m\n"),
        ("# mine\n", "# mine\nmodel: m\n"),
        ("a: 1", "a: 1\nmodel: m"),
        ("a: 1  # one\n# end\n", "a: 1  # one\nmodel: m\n# end\n"),
        ("a:\n- 1\n- 2  # two\n\n# b\nb: 2\n", "a:\n- 1\n- 2  # two\n\n# b\nb: 2\nmodel: m\n"),
        ("a: |\n  text\n\n# end\n", "a: |\n  text\nmodel: m\n\n# end\n"),
        ("{a: 1}\n", '{a: 1, "model": "m"}\n'),
        ("---\na: 1\n...\n", "---\na: 1\nmodel: m\n...\n"),
        ("a: 1\r\nb: 2\r\n", "a: 1\r\nb: 2\r\nmodel: m\r\n"),
        ("model: old   # best\nb: 2\n", "model: m   # best\nb: 2\n"),
        ("'model':\n  old\nb: 2\n", "'model': m\nb: 2\n"),
        ("model:  # none yet\nb: 2\n", "model: m  # none yet\nb: 2\n"),
    ],
)
def test_an_entry_is_added_to_a_mapping(before: str, after: str) -> None:
    assert edited("yaml", before, [(("model",), "m")]) == after


ITEM = {"name": "arb", "roles": ["chat"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("name: x\n", "name: x\nmodels:\n- name: arb\n  roles:\n  - chat\n"),
        ("models:\n  - name: a  # first\n", "models:\n  - name: a  # first\n  - name: arb\n    roles:\n    - chat\n"),
        ("models:\n- name: a\nz: 1\n", "models:\n- name: a\n- name: arb\n  roles:\n  - chat\nz: 1\n"),
        ("models: []\n", 'models: [{"name": "arb", "roles": ["chat"]}]\n'),
        ("models: # none\nz: 1\n", "models: # none\n  - name: arb\n    roles:\n    - chat\nz: 1\n"),
        (
            "models:\n  - name: arb\n    roles: [a]\n  - name: b\n",
            "models:\n  - name: arb\n    roles:\n    - chat\n  - name: b\n",
        ),
    ],
)
def test_an_element_is_added_to_a_list(before: str, after: str) -> None:
    place: Place = ("models", Named("name", "arb"))
    assert edited("yaml", before, [(place, ITEM)]) == after
    assert same(yaml.safe_load(reverted("yaml", after, before, [(place, ITEM)])[0]), yaml.safe_load(before))


@pytest.mark.parametrize(
    "text",
    ["a: [1", "a: 1\n---\nb: 2\n", "a: !secret x\n", "\tb: 1\n", "a: *nobody\n", "? [a]\n: 1\n", "[" * 5000, "\x01"],
)
def test_what_is_no_single_plain_document_is_refused(text: str) -> None:
    with pytest.raises(Broken):
        edited("yaml", text, [(("model",), "m")])


@pytest.mark.parametrize("text", ["- 1\n", "just text\n", "3\n", "a: 1\nmodel: &m x\nb: *m\n", "a: &x [*x]\n"])
def test_what_cannot_be_edited_safely_is_refused(text: str) -> None:
    """An anchor that others refer to must not go."""
    with pytest.raises(Broken):
        edited("yaml", text, [(("model",), "m")])


TREES = st.recursive(
    st.sampled_from(["x", "a: b", "# no", "yes", "1", "", "two\nlines\n", "é", 1, 1.5, True, None, "x" * 200]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["env", "KEY", "a", "b c", "on", "1"]), below, max_size=3)
    ),
    max_leaves=8,
)


@given(
    tree=st.dictionaries(st.sampled_from(["env", "KEY", "a", "b c", "on"]), TREES, max_size=4),
    flow=st.sampled_from([None, False, True]),
    indent=st.sampled_from([2, 4]),
    comments=st.lists(st.integers(0, 30), max_size=4),
    edit=EDITS,
)
def test_a_yaml_file_says_what_was_meant_and_loses_no_comment(
    tree: dict[str, Any], flow: bool | None, indent: int, comments: list[int], edit: tuple[Place, Any]
) -> None:
    place, value = edit
    text = yaml.safe_dump(tree, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True)
    lines = text.splitlines(keepends=True)
    if not any("|" in line or "'" in line or '"' in line or ">" in line for line in lines):  # not into a text
        for at in comments:
            lines.insert(min(at, len(lines)), "# kept\n")
    text = "".join(lines)
    try:
        wanted = put(tree, place, value)
    except Misfit:
        with pytest.raises(Broken):
            edited("yaml", text, [(place, value)])
        return
    new = edited("yaml", text, [(place, value)])
    assert same(yaml.safe_load(new), wanted)
    if lookup(tree, place) is MISSING:
        assert new.count("# kept") == text.count("# kept")
    back, kept = reverted("yaml", new, text, [(place, value)])
    assert same(yaml.safe_load(back) or {}, tree) and not kept


# ---------------------------------------------------------------------------------------------------------------- TOML

PROVIDER = ("model_providers", "arbiter")
CODEX: list[tuple[Place, Any]] = [
    (("model",), "m"),
    (("model_provider",), "arbiter"),
    ((*PROVIDER, "base_url"), "http://x/v1"),
    ((*PROVIDER, "env_key"), MISSING),
    ((*PROVIDER, "http_headers", "Authorization"), "Bearer k"),
]
PIECES = [
    "# kept\n",
    "\n",
    'sandbox = "read-only" # kept\n',
    "notify = [\n  'a', # kept\n]\n",
    "history.persistence = 'none'\n",
    'model = "old" # kept\n',
]
DOTTED = [
    "model_providers.dotted.name = 'd' # kept\n",
    "model_providers.arbiter.name = 'Mine' # kept\n",
    "model_providers.arbiter.http_headers = { X = 'y' } # kept\n",
    "model_providers.arbiter = { env_key = 'X' } # kept\n",
]
TABLES = [
    "[tools]\nweb_search = true # kept\n",
    "[mcp_servers.one]\ncommand = 'x'\nenv = { A = '1' } # kept\n",
    "[[profiles.list]]\nname = 'a'\n",
    "[model_providers.other]\nname = 'Other' # kept\n",
    "[model_providers.arbiter]\nbase_url = 'http://old' # kept\nenv_key = 'X'\n",
    "[model_providers]\n",
    "[projects.'/a b']\ntrust = 'yes'\n# kept\n",
]


@given(
    pieces=st.lists(st.sampled_from(PIECES), unique=True),
    tables=st.lists(st.sampled_from(TABLES), unique=True),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_a_toml_file_says_what_was_meant_and_loses_no_comment(
    pieces: list[str], tables: list[str], newline: str
) -> None:
    """Also where a table's parts stand apart from each other."""
    text = "".join(pieces + tables).replace("\n", newline)
    _holds(text, edited("toml", text, CODEX))


@given(
    dotted=st.lists(st.sampled_from(DOTTED), min_size=1, unique=True),
    pieces=st.lists(st.sampled_from(PIECES), unique=True),
    tables=st.lists(st.sampled_from(TABLES), unique=True),
)
def test_dotted_keys_are_understood_or_refused(dotted: list[str], pieces: list[str], tables: list[str]) -> None:
    text = "".join(pieces[:1] + dotted + pieces[1:] + tables)
    try:
        new = edited("toml", text, CODEX)
    except Broken:
        return
    _holds(text, new)


def _holds(text: str, new: str) -> None:
    tree = wanted = tomllib.loads(text)
    for place, value in CODEX:
        if value is not MISSING:
            wanted = put(wanted, place, value)
        elif lookup(wanted, place) is not MISSING:
            wanted = drop(wanted, place)
    assert same(tomllib.loads(new), wanted)
    assert new.count("kept") == text.count("kept")
    assert edited("toml", new, CODEX) == new
    back, kept = reverted("toml", new, text, CODEX)
    assert same(tomllib.loads(back), tree) and not kept


@pytest.mark.parametrize("text", ["a = ", "[a]\n[a]\n", "model_providers = 1\n", "\ufeffa = 1\n"])
def test_a_toml_file_that_is_none_or_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(Broken):
        edited("toml", text, CODEX)


def test_an_inline_table_stays_one() -> None:
    text = 'model_providers = { other = { name = "o" } } # kept\n'
    assert tomllib.loads(edited("toml", text, CODEX))["model_providers"]["other"] == {"name": "o"}


# ----------------------------------------------------------------------------------------------------- variables, words


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "KEY=v\n"),
        ("A=1", "A=1\nKEY=v\n"),
        ("# KEY=x\nexport KEY='old'\nB=2\n", "# KEY=x\nexport KEY=v\nB=2\n"),
        ("KEY=1\r\nB=2\r\n", "KEY=v\r\nB=2\r\n"),
        ("KEY=1\nKEY=2", "KEY=1\nKEY=v"),
    ],
)
def test_a_variable_has_one_line(before: str, after: str) -> None:
    assert edited("env", before, [(("KEY",), "v")]) == after
    assert edited("env", after, [(("KEY",), "v")]) == after


@pytest.mark.parametrize("value", ["", "a b", "$x", "it's", "#", "http://h/v1?"])
def test_a_variable_is_read_as_it_was_written(value: str) -> None:
    assert FORMATS["env"].parse(edited("env", "A=1\n", [(("KEY",), value)])) == {"A": "1", "KEY": value}


def test_a_word_takes_the_place_of_another() -> None:
    place: Place = ("word",)
    assert edited("word", "old\n", [(place, "new")]) == "new\n"
    assert edited("word", "", [(place, "new")]) == "new"
    assert reverted("word", "new\n", "old", [(place, "new")]) == ("old\n", [])
    assert reverted("word", "new", "", [(place, "new")]) == ("", [])


# ---------------------------------------------------------------------------------------------------------------- back


def test_what_somebody_changed_since_stays_and_is_told() -> None:
    original = json.dumps({"model": "mine", "env": {"A": "1"}})
    edits: list[tuple[Place, Any]] = [(("model",), "ours"), (KEY, "v"), (("deep", "in", "it"), 1)]
    tree = json.loads(edited("json", original, edits))
    tree["model"] = "theirs"
    tree["env"]["NEW"] = "2"
    text, kept = reverted("json", json.dumps(tree), original, edits)
    assert json.loads(text) == {"model": "theirs", "env": {"A": "1", "NEW": "2"}}
    assert kept == [("model",)]


def test_what_was_taken_out_comes_back() -> None:
    edits: list[tuple[Place, Any]] = [(KEY, MISSING)]
    original = '{"env": {"KEY": "mine", "A": 1}}'
    new = edited("json", original, edits)
    text, kept = reverted("json", new.replace("1", "2"), original, edits)
    assert json.loads(text) == {"env": {"KEY": "mine", "A": 2}} and not kept


@pytest.mark.parametrize(
    ("kind", "text", "empty"),
    [("json", "{ }\n", True), ("json", "// x\n{}", False), ("yaml", "\n", True), ("toml", "{}", False)],
)
def test_a_file_is_empty_when_nothing_is_lost_with_it(kind: str, text: str, empty: bool) -> None:
    assert is_empty(kind, text) is empty
