"""What the operator's own names stand for: pins, groups and fallback lists, down to providers and models.

A name is read in the order in which a request's `model` is: a declared model, then `provider/model`, then an alias.
What is handed out can be followed without care: no circle, no chain over `MAX_ALIAS_STEPS`, no name that comes to
more than `MAX_TARGETS` targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from arbiter.config import schema
from arbiter.config.address import Fault
from arbiter.config.decode import join, nearest
from arbiter.config.snapshot import Alias, Member, Model, Provider, Routing
from arbiter.config.words import check_identifier

MAX_ALIAS_STEPS = 8  # more is a mistake that nobody can read any more
MAX_TARGETS = 256  # layers of groups multiply; no request is tried that often


class Names:
    """Resolves names against the providers and aliases of one file.

    `stands` says whether a key is in the file, `warnings` takes what is probably not meant. Errors, of all methods:
    what `error(path, message)` makes.
    """

    def __init__(
        self,
        written: Mapping[str, schema.Alias],
        providers: Mapping[str, Provider],
        models: Mapping[str, tuple[Provider, Model]],
        error: Fault,
        stands: Callable[[str], bool],
        warnings: list[str],
    ) -> None:
        self._written = written
        self._providers = providers
        self._models = models
        self._error = error
        self._stands = stands
        self._warnings = warnings

    def aliases(self) -> dict[str, Alias]:
        """Every alias under its name, and once more under the name it is advertised as."""
        found: dict[str, Alias] = {}
        for name, alias in self._written.items():
            path = join("aliases", name)
            check_identifier(name, partial(self._error, path))
            self._check_free(name, path)
            found[name] = self._alias(name, alias, path)
        self._check_ends(found)
        for made in found.values():
            if made.is_group:
                self._warn_of_blindness(made, found)
        for made in list(found.values()):
            shown, path = made.advertise_as, join(join("aliases", made.name), "advertise_as")
            if shown is None or shown == made.name:
                continue
            check_identifier(shown, partial(self._error, path))
            self._check_free(shown, path)
            if shown in found:
                raise self._error(path, f'"{shown}" is taken by another alias')
            found[shown] = made
        return found

    def routing(self, written: schema.Routing) -> Routing:
        """The routing section, its names resolved."""
        default = written.default_provider
        if default is not None and default not in self._providers:
            raise self._error("routing.default_provider", f"no such provider{nearest(default, self._providers)}")
        members = self._members(written.fallback, "routing.fallback", None)
        if written.explicit_fallback and not members:
            self._warnings.append("routing.explicit_fallback: has no effect without routing.fallback")
        if members and not self._written and not written.explicit_fallback:
            # The likeliest mistake about fallbacks: nothing fails, until the day they are needed.
            self._warnings.append(
                "routing.fallback: is never used; there is no alias, and a model that a client names gets no other "
                "unless routing.explicit_fallback is true"
            )
        return Routing(default, members, written.explicit_fallback)

    def _alias(self, name: str, written: schema.Alias, path: str) -> Alias:
        has_group = self._stands(join(path, "group"))
        if has_group == (written.pin is not None):
            if has_group:
                raise self._error(join(path, "group"), "give either pin or group")
            raise self._error(path, "say what it stands for: pin: for one model, group: for several to select from")
        shown = (written.display_name or None, written.advertise_as or None)
        if written.pin is not None:
            for option in ("select", "weights"):
                if self._stands(join(path, option)):
                    raise self._error(join(path, option), "is for a group; a pin has nothing to select from")
            return Alias(name, (self._member(written.pin, join(path, "pin"), name),), False, "ordered", *shown)
        here = join(path, "group")
        if not written.group:
            raise self._error(here, "an empty group has nothing to select from")
        members = self._members(written.group, here, name)
        if written.weights:
            members = self._weighed(written, members, path)
        return Alias(name, members, True, written.select, *shown)

    def _weighed(self, written: schema.Alias, members: tuple[Member, ...], path: str) -> tuple[Member, ...]:
        here = join(path, "weights")
        if written.select != "weighted":
            raise self._error(here, f"are for select: weighted, and select is {written.select}")
        for name in written.weights:
            if name not in written.group:
                raise self._error(join(here, name), f"no member of the group{nearest(name, written.group)}")
        return tuple(
            Member(member.provider, member.model, member.alias, written.weights.get(text, 1.0))
            for text, member in zip(written.group, members, strict=True)
        )

    def _members(self, written: list[str], path: str, within: str | None) -> tuple[Member, ...]:
        found: list[Member] = []
        for index, text in enumerate(written):
            here = join(path, index)
            member = self._member(text, here, within)
            if member in found:
                first = written[found.index(member)]
                same = "" if first == text else f'; it is the same as "{first}"'
                raise self._error(here, f'"{text}" is listed twice{same}')
            found.append(member)
        return tuple(found)

    def _member(self, text: str, path: str, within: str | None) -> Member:
        """What a name stands for; `within` is the alias it was found in."""
        if text in self._models:
            return Member(self._models[text][0].name, text)
        name, slash, model = text.partition("/")
        if slash and name in self._providers:
            declared = [known.id for known in self._providers[name].models]
            # A provider that lists no models serves whatever it is asked for by name.
            if (declared or not model) and model not in declared:
                hint = nearest(model, declared) or f"; add it to {join('providers', name)}.models"
                raise self._error(path, f'{name} declares no model "{model}"{hint}')
            check_identifier(model, partial(self._error, path))
            return Member(name, model)
        if text in self._written:
            return Member(alias=text)
        whole = {f"{provider.name}/{model.id}" for provider in self._providers.values() for model in provider.models}
        known = ({*self._written, *self._models} | whole) - {within or ""}
        raise self._error(path, f'no model, provider/model or alias is called "{text}"{nearest(text, known)}')

    def _check_free(self, name: str, path: str) -> None:
        if name in self._providers:
            raise self._error(path, f'"{name}" is the name of a provider; choose another')
        if name.split("/", 1)[0] in self._providers and "/" in name:
            raise self._error(path, f'"{name}" would be read as provider/model; choose another')
        if name in self._models:
            self._warnings.append(f'{path}: "{name}" is a declared model, which wins over the alias')

    def _check_ends(self, found: Mapping[str, Alias]) -> None:
        """Every alias ends at targets, within a few steps, and at not too many."""
        heights: dict[str, int] = {}  # aliases on the longest way down, itself among them
        counts: dict[str, int] = {}  # targets it comes to

        def follow(name: str, trail: list[str]) -> None:
            trail = [*trail, name]
            height, count = 1, 0
            for index, member in enumerate(found[name].members):
                if member.alias is None:
                    count += 1
                    continue
                path = join(join("aliases", name), "pin")
                if found[name].is_group:
                    path = join(join(join("aliases", name), "group"), index)
                if member.alias in trail:
                    circle = [*trail[trail.index(member.alias) :], member.alias]
                    raise self._error(path, f"aliases point at each other: {' → '.join(circle)}")
                if len(trail) + heights.get(member.alias, 1) > MAX_ALIAS_STEPS:
                    raise self._error(path, f"more than {MAX_ALIAS_STEPS} aliases lead from one to the next")
                if member.alias not in heights:
                    follow(member.alias, trail)
                height = max(height, 1 + heights[member.alias])
                count += counts[member.alias]
            if count > MAX_TARGETS:
                raise self._error(join("aliases", name), f"it comes to {count} targets, more than {MAX_TARGETS}")
            heights[name], counts[name] = height, count

        for name in found:
            if name not in heights:
                follow(name, [])

    def _warn_of_blindness(self, alias: Alias, found: Mapping[str, Alias]) -> None:
        """Warn of a selection that has nothing to go by."""
        if not alias.select.startswith("cheapest") and alias.select != "fastest":
            return
        for member in targets(alias.members, found):
            provider = self._providers[member.provider or ""]
            model = provider.model(member.model)
            asked = model.upstream if model is not None else member.model
            rate, card = provider.rate(asked), provider.cards.get(asked)
            if alias.select == "fastest":
                known: object = card.latency_ms_p50 if card is not None else None
            elif rate is not None:
                known = rate.input if alias.select == "cheapest_input" else rate.output
            else:
                known = None
            if known is not None:
                return
        missing = {
            "cheapest_input": "input_usd_per_mtok",
            "cheapest_output": "output_usd_per_mtok",
            "fastest": "latency_ms_p50",
        }[alias.select]
        self._warnings.append(
            f"{join(join('aliases', alias.name), 'select')}: {alias.select} has nothing to go by, so the first listed "
            f"is used; no member has a row in models with {missing}"
        )


def targets(members: Iterable[Member], aliases: Mapping[str, Alias]) -> Iterator[Member]:
    """The models that `members` come to, each once, in the listed order, those of nested aliases in their place."""
    seen: set[tuple[str | None, str]] = set()
    for member in _leaves(members, aliases):
        if (member.provider, member.model) not in seen:
            seen.add((member.provider, member.model))
            yield member


def _leaves(members: Iterable[Member], aliases: Mapping[str, Alias]) -> Iterator[Member]:
    for member in members:
        if member.alias is None:
            yield member
        else:
            yield from _leaves(aliases[member.alias].members, aliases)
