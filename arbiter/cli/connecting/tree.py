"""A settings file as plain values, and places in it.

A place is a tuple of steps from the top: a string is a key, a `Named` the element of a list that has a certain member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Named(NamedTuple):
    """The element of a list whose `member` is `value`; the last one, should there be several."""

    member: str
    value: str


Step = str | Named
Place = tuple[Step, ...]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
"""What stands where nothing stands."""


class Broken(Exception):
    """A text is not in its format. The message says where, and what is wrong."""


class Misfit(Broken):
    """What stands on the way to a place is not of the kind that the place is in."""


def index(items: Sequence[Any], step: Named) -> int | None:
    """Which of `items` the step means."""
    found = None
    for number, item in enumerate(items):
        if isinstance(item, dict) and item.get(step.member) == step.value:
            found = number
    return found


def lookup(tree: Any, place: Place) -> Any:
    """What stands there; MISSING where nothing does, or nothing can."""
    for step in place:
        if isinstance(step, Named):
            number = index(tree, step) if isinstance(tree, list) else None
            tree = MISSING if number is None else tree[number]
        else:
            tree = tree.get(step, MISSING) if isinstance(tree, dict) else MISSING
        if tree is MISSING:
            break
    return tree


def put(tree: Any, place: Place, value: Any) -> Any:
    """`tree` with `value` there; what is on the way to it and missing, or empty, is made. Errors: Misfit."""
    if not place:
        return value
    step, rest = place[0], place[1:]
    if isinstance(step, Named):
        items: list[Any] = _as_list(tree)
        number = index(items, step)
        if number is None:
            return [*items, put(MISSING, rest, value)]
        return [*items[:number], put(items[number], rest, value), *items[number + 1 :]]
    members = _as_dict(tree)
    return {**members, step: put(members.get(step, MISSING), rest, value)}


def drop(tree: Any, place: Place) -> Any:
    """`tree` without what stands there, which must."""
    step, rest = place[0], place[1:]
    if isinstance(step, Named):
        number = index(tree, step)
        assert number is not None
        return [*tree[:number], *([drop(tree[number], rest)] if rest else []), *tree[number + 1 :]]
    if rest:
        return {**tree, step: drop(tree[step], rest)}
    return {key: value for key, value in tree.items() if key != step}


def nested(place: Place, value: Any) -> Any:
    """`value` wrapped in what `place` leads through."""
    return put(MISSING, place, value)


def same(one: Any, other: Any) -> bool:
    """Whether two trees say the same. 1, 1.0 and True differ, NaN is itself, and the order of keys says nothing.

    Errors: Broken for what holds itself, as YAML can.
    """
    try:
        return repr(_sorted(one)) == repr(_sorted(other))
    except RecursionError:
        raise Broken("it is nested without end") from None


def _sorted(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _sorted(tree[key]) for key in sorted(tree, key=repr)}
    return [_sorted(item) for item in tree] if isinstance(tree, list) else tree


def _as_list(tree: Any) -> list[Any]:
    if tree is MISSING or tree is None:
        return []
    if not isinstance(tree, list):
        raise Misfit("a list is expected")
    return tree


def _as_dict(tree: Any) -> dict[str, Any]:
    if tree is MISSING or tree is None:
        return {}
    if not isinstance(tree, dict):
        raise Misfit("a mapping is expected")
    return tree
