"""What was captured of one request, for the console: who said what, one after the other."""

from __future__ import annotations

from arbiter.ledger.questions.content import Content


def tell(found: Content) -> str:
    """The conversation as text, ending with a line break."""
    lines: list[str] = []
    for piece in found.pieces:
        use = piece.use
        if piece.json is None:
            lines += ["", f"--- {use.kind}: no longer kept"]
            continue
        for one in piece.said():
            title = f"answer, {one.label}" if use.direction == "out" else one.label
            lines += ["", f"--- {_plain(title)}"]
            lines += [_plain(line) for line in one.text.splitlines()]
    for direction, title in (("in", "headers of the request"), ("out", "headers of the answer")):
        if fields := found.headers.get(direction):
            lines += ["", f"--- {title}"]
            lines += [_plain(f"{name}: {value}") for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def _plain(line: str) -> str:
    """What a console may be shown: a message must not move the cursor or colour the terminal. Tabs are text."""
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in line)
