"""Prompt-cache marks on the native lane, where the operator said that they are not the client's to set (SPEC 2.8).

The client's marks go, wherever they are: on the request itself (Anthropic's automatic caching), on tools, on the system
prompt, on blocks and on what those hold. What cannot be opened keeps its bytes, and nothing around it is spared for
that. Where Arbiter marks, text that was a bare string becomes a block, on every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Raw

from arbiter.errors import BadRequest
from arbiter.model import CacheMark, Target
from arbiter.wire import marked
from arbiter.wire.json import blame
from arbiter.wire.marked import Cutter

_TOP = "cache_control"
_NEAR = 100
"""Among how many turns, and blocks of one, a place for a mark is looked for: all others behind it bear none."""
_NEAR_TOOL = 10_000


def sets(target: Target) -> bool:
    """Whether the marks in a request to `target` are not the client's."""
    return target.prompt_cache not in ("auto", "client")


def settled(members: Mapping[str, Raw], target: Target) -> tuple[Mapping[str, Raw], list[str]]:
    """Return `members` with the marks that `target` asks for, and the names of those that had to change.

    Errors: BadRequest where there is too much for anybody to look through.
    """
    whose = target.prompt_cache
    if not sets(target):
        return members, []
    cache = None
    if whose == "arbiter":
        cache = CacheMark(target.prompt_cache_ttl if target.prompt_cache_ttl == "1h" else None)
    cutter = Cutter()
    changed: dict[str, Raw] = {}
    for name, settle in (("tools", _tools), ("system", _content), ("messages", _messages)):
        if name in members:
            before = bytes(members[name])
            try:
                marked.check_count(before)
                after = settle(cutter, before, cache)
            except BadRequest as error:
                raise blame(name, "", str(error)) from None
            if after != before:
                changed[name] = Raw(after)
    gone = [_TOP] if _TOP in members else []
    kept = {name: changed.get(name, raw) for name, raw in members.items() if name != _TOP}
    return kept, gone + list(changed)


def _tools(cutter: Cutter, tools: bytes, cache: CacheMark | None) -> bytes:
    if not marked.is_array(tools):
        return tools
    tools = cutter.each(tools, cutter.unmarked) if marked.may_bear(tools) else tools
    if cache is None:
        return tools
    return _last_marked(cutter, tools, partial(_loads_at_once, cutter), cache, _NEAR_TOOL)


def _loads_at_once(cutter: Cutter, tool: bytes) -> bool:
    """Whether a tool bears a mark: one that is only found by a search stands outside of the prompt's beginning."""
    return marked.is_object(tool) and not any(
        one.name == b"defer_loading" and one.value.strip() == b"true" for one in cutter.members_of(tool)
    )


def _content(cutter: Cutter, content: bytes, cache: CacheMark | None) -> bytes:
    content = _unmarked(cutter, content, as_blocks=cache is not None)
    return _last_marked(cutter, content, cutter.bears, cache) if cache is not None else content


def _unmarked(cutter: Cutter, content: bytes, *, as_blocks: bool) -> bytes:
    if content[:1] == b'"':
        text = content.rstrip()
        bare = as_blocks and text != b'""'
        return b'[{"type":"text","text":%b}]%b' % (text, content[len(text) :]) if bare else content
    return cutter.each(content, cutter.unmarked) if marked.is_array(content) and marked.may_bear(content) else content


def _messages(cutter: Cutter, messages: bytes, cache: CacheMark | None) -> bytes:
    if not marked.is_array(messages) or (cache is None and not marked.may_bear(messages)):
        return messages
    turns = cutter.pieces_of(messages)
    turns = [_turn(cutter, turn, as_blocks=cache is not None) for turn in turns]
    if cache is not None:
        _mark_newest(cutter, turns, cache)
    return marked.joined(messages, turns)


def _turn(cutter: Cutter, turn: bytes, *, as_blocks: bool) -> bytes:
    if not marked.is_object(turn) or not (as_blocks or marked.may_bear(turn)):
        return turn
    return _with_content(cutter, turn, lambda content: _unmarked(cutter, content, as_blocks=as_blocks))


def _with_content(cutter: Cutter, turn: bytes, change: Callable[[bytes], bytes]) -> bytes:
    before = cutter.members_of(turn)
    after = [one.with_value(change(one.value)) if one.name == b"content" else one for one in before]
    return turn if before == after else marked.joined(turn, [one.text for one in after])


def _mark_newest(cutter: Cutter, turns: list[bytes], cache: CacheMark) -> None:
    """Mark the last block that bears a mark, outside of an assistant's turn at the end: that comes back as another."""
    end = len(turns)
    if turns and _role(cutter, turns[-1]) == "assistant":
        end -= 1
    for n in reversed(range(max(0, end - _NEAR), end)):
        if marked.is_object(turns[n]):
            turn = _with_content(cutter, turns[n], lambda content: _last_marked(cutter, content, cutter.bears, cache))
            if turn != turns[n]:
                turns[n] = turn
                return


def _role(cutter: Cutter, turn: bytes) -> str | None:
    if not marked.is_object(turn):
        return None
    return {one.name: marked.word(one.value.strip()) for one in cutter.members_of(turn)}.get(b"role")


def _last_marked(
    cutter: Cutter, array: bytes, bears: Callable[[bytes], bool], cache: CacheMark, within: int = _NEAR
) -> bytes:
    """Return `array` with a mark on the last of its entries that bears one."""
    if not marked.is_array(array):
        return array
    found = cutter.pieces_of(array)
    for n in reversed(range(max(0, len(found) - within), len(found))):
        if bears(found[n]):
            found[n] = marked.marked(found[n], cache)
            return marked.joined(array, found)
    return array
