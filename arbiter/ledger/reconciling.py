"""A provider's bill spread over the rows it is for: each day's dollars of a model, by tokens (SPEC 9.4).

A row is one line's: of the lines of a provider and day, each row goes to the one that names its model most exactly.

One line of the bill is one transaction. A line that its rows add up to already is passed over, so that whoever was
stopped half-way goes on by starting again.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import msgspec

from arbiter.accounting.model_names import spellings
from arbiter.accounting.prices import MAX_PD
from arbiter.config.rates import DAY_MS, rounded
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.pricing import settle

SOURCE = "reconciled"
_NAMES = {
    "date": ("date", "day", "start_date", "usage_date"),
    "model": ("model", "model_id", "model_name"),
    "usd": ("usd", "cost_usd", "cost", "amount", "amount_usd"),
    "provider": ("provider",),
}
_EPOCH = datetime.date(1970, 1, 1)
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")


class BadBill(ValueError):
    """A bill that cannot be read; the text says where."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one model cost on one day, in UTC."""

    day: datetime.date
    model: str
    pd: int
    provider: str

    @property
    def begins_ms(self) -> int:
        return (self.day - _EPOCH).days * DAY_MS


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a line: `rows` of it were given its money, which they had (or had not) before."""

    line: Line
    rows: int = 0
    before_pd: int = 0
    unpriced: int = 0  # of the rows: had no cost
    is_done: bool = False  # they add up to it already


def parse(raw: bytes, provider: str | None) -> list[Line]:
    """The lines of a bill: CSV with a head, or JSON (a list of objects, or one under `data`). Lines of a model and day
    add up. `provider` is whose it is where the lines do not say.

    Errors: BadBill.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadBill("it is not UTF-8") from error
    found: dict[tuple[str, datetime.date, str], int] = {}
    for where, entry in _entries(text):
        line = _line(entry, where, provider)
        key = line.provider, line.day, line.model
        found[key] = found.get(key, 0) + line.pd
        if found[key] > MAX_PD:
            raise BadBill(f"{where}: the lines of {line.model} on {line.day} come to more than a column holds")
    if not found:
        raise BadBill("there is no line in it")
    return [Line(day=day, model=model, pd=pd, provider=whose) for (whose, day, model), pd in sorted(found.items())]


def spread(
    lines: Sequence[Line],
    change: Callable[[Callable[[Database], Share]], Share],
    *,
    label: str,
    dry_run: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Share]:
    """Give each line's money to its rows. `label` says in them where it comes from. Errors: StoreDown."""
    billed: dict[tuple[str, datetime.date], list[str]] = {}
    for line in lines:
        billed.setdefault((line.provider, line.day), []).append(line.model)
    shares = []
    for number, line in enumerate(lines, 1):
        models = billed[line.provider, line.day]
        work = partial(_spread, line=line, models=models, label=f"{label} {line.day}", dry_run=dry_run)
        shares.append(change(work))
        progress(number)
    return shares


def parts(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts, in proportion to `weights`; evenly where there are none. They add up to it exactly."""
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    given, seen, shares = 0, 0, []
    for weight in weights:
        seen += weight
        upto = total * seen // whole
        shares.append(upto - given)
        given = upto
    return shares


# ---------------------------------------------------------------------- inside

_TOKENS = "COALESCE(input_tokens, estimated_input_tokens, 0) + COALESCE(cached_tokens, 0)"
_TOKENS += " + COALESCE(cache_write_tokens, 0) + COALESCE(output_tokens, estimated_output_tokens, 0)"
_ROWS = (
    f"SELECT id, request_id, model_asked, model_served, {_TOKENS}, cost_pd, cost_source, price FROM attempts"
    " WHERE started_ms >= ? AND started_ms < ? AND provider = ? AND usage_source <> 'missing'"
    " AND (cost_source IS NULL OR cost_source <> 'subscription') ORDER BY started_ms, id"
)


def _spread(db: Database, *, line: Line, models: Sequence[str], label: str, dry_run: bool) -> Share:
    found = db.rows(_ROWS, (line.begins_ms, line.begins_ms + DAY_MS, line.provider))
    rows = _by_model(found, models).get(line.model, [])
    known = [row[5] for row in rows if row[5] is not None]
    share = Share(
        line=line,
        rows=len(rows),
        before_pd=sum(known),
        unpriced=len(rows) - len(known),
        is_done=bool(rows) and sum(known) == line.pd and all(row[6] == SOURCE and row[7] == label for row in rows),
    )
    if rows and not share.is_done and not dry_run:
        money = parts(line.pd, [max(0, row[4]) for row in rows])
        sql = f"UPDATE attempts SET cost_pd = ?, cost_source = '{SOURCE}', price = ? WHERE id = ?"
        db.run_many(Statement(sql, [(pd, label, row[0]) for pd, row in zip(money, rows, strict=True)]))
        settle(db, (row[1] for row in rows))
    return share


def _by_model(rows: Sequence[tuple[Any, ...]], models: Sequence[str]) -> Mapping[str, list[tuple[Any, ...]]]:
    """The rows of each billed model, every row once: by the very name that was served, else asked for.

    A model of which there is none by its name has those that share what is left of it without dates and the like, and
    that no other model has.
    """
    known = set(models)
    found: dict[str, list[tuple[Any, ...]]] = {}
    rest: dict[str, list[tuple[Any, ...]]] = {}  # by their bare name
    for row in rows:
        names = [name for name in (row[3], row[2]) if name]  # a bill says what was served
        exact = next((name for name in names if name in known), None)
        if exact is not None:
            found.setdefault(exact, []).append(row)
            continue
        for bare in {_bare(name) for name in names}:
            rest.setdefault(bare, []).append(row)
    taken: set[str] = set()
    for model in sorted(known - found.keys()):
        mine = [row for row in rest.get(_bare(model), ()) if row[0] not in taken]
        taken.update(row[0] for row in mine)
        found[model] = mine
    return found


@lru_cache(1024)
def _bare(model: str) -> str:
    *_, last = spellings(model.lower())
    return last


def _entries(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            found = json.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise BadBill(f"this is no JSON: {error}") from error
        if isinstance(found, dict):
            found = found.get("data")
        if not isinstance(found, list):
            raise BadBill("expected a list of objects, or an object with one under `data`")
        for number, entry in enumerate(found):
            if not isinstance(entry, dict):
                raise BadBill(f"[{number}]: expected an object")
            yield f"[{number}]", entry
        return
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        for row in reader:
            if None in row:
                raise BadBill(f"line {reader.line_num}: more cells than the head has; quote what has a comma in it")
            yield f"line {reader.line_num}", {(name or "").strip().lower(): value for name, value in row.items()}
    except csv.Error as error:
        raise BadBill(f"this is no CSV: {error}") from error


def _line(entry: dict[str, Any], where: str, provider: str | None) -> Line:
    whose = _member(entry, "provider") or provider
    if not whose:
        raise BadBill(f"{where}: nobody says whose bill this is; name it with --provider")
    day, model, usd = (_member(entry, name) for name in ("date", "model", "usd"))
    if day is None or model is None or usd is None:
        raise BadBill(f"{where}: expected date, model and usd")
    try:
        date = datetime.date.fromisoformat(str(day)[:10])
    except ValueError:
        raise BadBill(f"{where}: {str(day)[:40]!r} is no date like 2026-08-31") from None
    said = str(usd).removeprefix("$")
    if "," in said and not _THOUSANDS.fullmatch(said):
        raise BadBill(f"{where}: {said[:40]!r} has a comma where no thousands end; write cents behind a point")
    try:
        pd = rounded(Decimal(said.replace(",", "")) * 10**12)
    except (ArithmeticError, ValueError):
        raise BadBill(f"{where}: {str(usd)[:40]!r} is no sum of money") from None
    if not 0 <= pd <= MAX_PD:
        raise BadBill(f"{where}: {str(usd)[:40]!r} is no cost; credits are not spread")
    return Line(day=date, model=str(model), pd=pd, provider=str(whose))


def _member(entry: dict[str, Any], name: str) -> Any:
    found: Iterable[Any] = (entry[key] for key in _NAMES[name] if entry.get(key) not in (None, ""))
    return next(iter(found), None)
