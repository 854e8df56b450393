"""From a spec and values for its fields to configurations: every one is checked before anything is trained."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syncline.errors import SpecError, one_of
from syncline.experiments.limits import check_training
from syncline.specs import CompareSpec, Override, RunSpec
from syncline.specs.experiment import MOST_SEEDS
from syncline.specs.load import load_spec, read_fields, with_overrides
from syncline.yamls import parse_yaml

NOT_SWEPT = {
    "seeds": "no seeds, which --seeds gives",
    "kind": "another field: a sweep's runs are all of kind 'run'",
    "name": "a field that changes something",
    "description": "a field that changes something",
    "source": "a field that changes something",
}
"""Fields that are no grid, and what is expected instead."""

MOST_CONFIGURATIONS = 1_000_000
"""A choice: checking them takes about an hour, and nobody looks at more."""


@dataclass(frozen=True)
class Grid:
    """A field and the values that it takes.

    Args:
        path: the field, in dots, as ``--set`` takes it.
        values: one after another.
        told: what refusals call it.
        shown: a short name for each value, for tables; the value itself by default.
        method: the only method that it is for, by its name in a grid over methods; all if empty.
    """

    path: str
    values: tuple[Any, ...]
    told: str
    shown: tuple[Any, ...] = ()
    method: str = ""

    def __post_init__(self) -> None:
        if not self.path or self.path.split(".")[0] in NOT_SWEPT:
            expected = NOT_SWEPT.get(self.path.split(".")[0], "a field of the spec, as in method.lr=1e-3,3e-3")
            raise SpecError(self.told, self.path, expected)
        if not self.values:
            raise SpecError(self.told, [], "at least one value")
        object.__setattr__(self, "shown", self.shown or tuple(map(flat_value, self.values)))

    @classmethod
    def parse(cls, text: str) -> Grid:
        """``field.path=1,2,3`` or ``field.path=[...]``: a comma list or a YAML list, as ``--grid`` takes it.

        ``mt-dao:field.path=...`` is for that method alone.

        Raises:
            SpecError: there is no ``=``, no YAML behind it, or no value.

        >>> Grid.parse("method.lr=1e-3,3e-3").values, Grid.parse('network=[10gbe, "50us,25Gbit/s"]').values
        ((0.001, 0.003), ('10gbe', '50us,25Gbit/s'))
        """
        path, equals, written = text.partition("=")
        if not equals or not path:
            raise SpecError("--grid", text, "field.path=value,value, as in method.lr=1e-3,3e-3")
        method, path = of_method(path)
        told = f"--grid {text.partition('=')[0]}"
        listed = written if written.lstrip().startswith("[") else f"[{written}]"
        try:
            values = parse_yaml(listed)
        except ValueError:
            values = None
        if not isinstance(values, list):
            raise SpecError(told, written, "values with commas between, or a list in YAML")
        return cls(path, tuple(values), told, method=method)

    @classmethod
    def of(cls, path: str, values: Any) -> Grid:
        """From Python: a field and its values."""
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise SpecError(f"grid[{path!r}]", values, "a list of values")
        method, field = of_method(path)
        return cls(field, tuple(values), f"grid[{path!r}]", method=method)


def of_method(path: str) -> tuple[str, str]:
    """The method that a field is swept for, empty for all, and the field.

    >>> of_method("mt-dao:method.period"), of_method("method.lr")
    (('mt-dao', 'method.period'), ('', 'method.lr'))
    """
    method, _, field = path.rpartition(":")
    return method, field


@dataclass(frozen=True)
class Configuration:
    """Values for the fields of all grids.

    Args:
        number: from 1, in the order of the sweep.
        values: by path, as tables show them.
        spec: with all the sweep's seeds.
    """

    number: int
    values: dict[str, Any]
    spec: RunSpec


@dataclass(frozen=True)
class SweptSpec:
    """What the configurations of a sweep have in common: a spec's fields, and what is set of them.

    Attributes:
        fields: of a spec of kind ``run``; some may be missing that grids give.
        overrides: as ``--set`` gives them.
        grids: of a comparison its methods and its networks, where nothing else is said of them.
    """

    fields: dict[str, Any]
    overrides: list[Override]
    grids: tuple[Grid, ...] = ()
    name: str = field(default="sweep")

    @classmethod
    def of(
        cls, spec: str | Path | Mapping[str, Any] | BaseModel, overrides: Sequence[Override], grids: Sequence[Grid]
    ) -> SweptSpec:
        """The base of a sweep over ``grids``.

        A comparison is its methods on its networks: ``method`` and ``network`` are two more grids. What is set below
        ``methods`` and ``networks`` is of the comparison.

        Raises:
            SpecError: the spec is neither a run nor a comparison, or something in it is wrong.
        """
        paths = [*(one.path for one in overrides), *(grid.path for grid in grids)]
        fields = _fields_of(spec, paths) if isinstance(spec, BaseModel) else read_fields(spec)
        if fields.get("kind") != "compare":
            if fields.get("kind") != "run":
                load_spec(fields, overrides, RunSpec, CompareSpec)  # says what is wrong
            return cls(fields, list(overrides), name=_name(fields))
        given = {grid.path for grid in grids} | {one.path for one in overrides}
        compared = [one for one in overrides if one.path.split(".")[0] not in ("method", "network")]
        checked = load_spec(fields, compared, CompareSpec)
        fields = with_overrides(fields, compared)
        methods = Grid("method", tuple(fields["methods"]), "methods", tuple(m.name for m in checked.methods))
        networks = Grid("network", tuple(fields["networks"]), "networks", tuple(n.name for n in checked.networks))
        for path in ("methods", "networks", "target_loss"):
            fields.pop(path, None)
        of_its_own = tuple(grid for grid in (methods, networks) if grid.path not in given)
        rest = [one for one in overrides if one not in compared]
        return cls(fields | {"kind": "run"}, rest, of_its_own, _name(fields))

    def spec(self, settings: Sequence[tuple[Grid, Any]], seeds: Sequence[int] | None) -> RunSpec:
        """The spec with a value for each grid.

        Raises:
            SpecError: names a grid's field where that is to blame, and else the configuration.
        """
        ordered = sorted(settings, key=lambda one: one[0].path.count("."))  # what contains a field before the field
        chosen = [Override(grid.path, value, grid.told, value) for grid, value in ordered]
        below = [one for one in self.overrides if any(_is_below(one.path, grid.path) for grid, _ in settings)]
        others = [one for one in self.overrides if one not in below]
        given = [*others, *chosen, *below]
        if seeds is not None:
            given.append(Override("seeds", list(seeds), "--seeds", list(seeds)))
        try:
            spec = load_spec(self.fields, given, RunSpec)
            check_training(spec, spec.method)
        except SpecError as error:
            # What is set below a grid's field is to blame itself.
            to_blame = [] if any(_is_in(error.path, one.path) for one in below) else settings
            raise blamed(error, to_blame, settings) from None
        return spec

    def check_apart(self, grids: Sequence[Grid]) -> None:
        """Refuse two values for one field.

        Raises:
            SpecError: a field is there twice, in grids or in a grid and in what is set.
        """
        seen: set[tuple[str, str]] = set()
        for grid in grids:
            if (grid.method, grid.path) in seen or ("", grid.path) in seen:
                raise SpecError(grid.told, grid.path, "each field once")
            seen.add((grid.method, grid.path))
        paths = {path for _, path in seen}
        for one in self.overrides:
            if one.path in paths:
                raise SpecError(one.told, one.written, f"nothing beside the grid over {one.path}")


Settings = list[tuple[Grid, int]]
"""Of each grid one value, by its number."""


def combinations(grids: Sequence[Grid]) -> Iterator[Settings]:
    """The product of all grids, the last one fastest, and those for one method alone after the others.

    Raises:
        SpecError: there are too many, or a grid is for a method that no grid over methods has.
    """
    of_all = [grid for grid in grids if not grid.method]
    methods = next((grid for grid in of_all if grid.path == "method"), None)
    names = [str(one) for one in methods.shown] if methods is not None else []
    for grid in grids:
        if grid.method and grid.method not in names:
            expected = (
                f"{one_of(names, grid.method)}, of the grid over methods" if names else "a grid over methods, too"
            )
            raise SpecError(grid.told, grid.method, expected)
    if math.prod(len(grid.values) for grid in grids) > MOST_CONFIGURATIONS:
        raise SpecError(grids[-1].told, len(grids[-1].values), f"{MOST_CONFIGURATIONS:,} configurations at most")
    for picked in itertools.product(*([(grid, i) for i in range(len(grid.values))] for grid in of_all)):
        name = next((str(grid.shown[i]) for grid, i in picked if grid is methods), "")
        of_one = [grid for grid in grids if grid.method and grid.method == name]
        for more in itertools.product(*([(grid, i) for i in range(len(grid.values))] for grid in of_one)):
            yield [*picked, *more]


def configurations(
    base: SweptSpec, grids: Sequence[Grid], seeds: Sequence[int] | None, first: int = 1
) -> list[Configuration]:
    """All combinations of values; without a grid the spec alone. They are numbered from ``first`` on.

    Raises:
        SpecError: of a configuration that cannot be trained, names the grid's field.
    """
    base.check_apart(grids)
    made = []
    for number, picked in enumerate(combinations(grids), first):
        spec = base.spec([(grid, grid.values[i]) for grid, i in picked], seeds)
        made.append(Configuration(number, {grid.path: grid.shown[i] for grid, i in picked}, spec))
    for grid in grids:
        check_names(grid, made)
    return made


def check_names(grid: Grid, made: Sequence[Configuration]) -> None:
    """Refuse methods and networks that tables could not tell apart.

    Raises:
        SpecError: two values of a grid over methods or networks have one name.
    """
    if grid.path not in ("method", "network"):
        return
    names: dict[str, Any] = {}
    for one in made:
        name, value = getattr(one.spec, grid.path).name, one.values[grid.path]
        if names.setdefault(name, value) != value:
            expected = f"different names; {name!r} is there twice (a method's label is its name)"
            raise SpecError(grid.told, list(grid.shown), expected)


def seeds_of(given: Any, told: str = "--seeds") -> tuple[int, ...] | None:
    """Seeds as a list, or how many: 3 is 0, 1 and 2. None of none.

    Raises:
        SpecError: neither.

    >>> seeds_of(3), seeds_of([7, 9])
    ((0, 1, 2), (7, 9))
    """
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MOST_SEEDS:
        return tuple(range(given))
    if isinstance(given, Sequence) and not isinstance(given, str) and given:
        return tuple(given)
    raise SpecError(told, given, "how many, as in 5, or which, as in [3, 4]")


def _fields_of(spec: BaseModel, paths: Iterable[str]) -> dict[str, Any]:
    """A spec's fields; the problem as it is, unless something in it is set."""
    fields: dict[str, Any] = spec.model_dump(mode="json", exclude={"problem"})
    inside = any(path.startswith("problem.") for path in paths)
    return fields | ({"problem": spec.model_dump()["problem"] if inside else getattr(spec, "problem", None)})


def _is_below(path: str, above: str) -> bool:
    return path.startswith(f"{above}.")


def _is_in(path: str, other: str) -> bool:
    return path == other or _is_below(path, other)


def blamed(error: SpecError, to_blame: Sequence[tuple[Grid, Any]], settings: Sequence[tuple[Grid, Any]]) -> SpecError:
    """The error in terms of the grids; where none of them is to blame, with the configuration."""
    if any(error.path == grid.told for grid, _ in settings):
        return error
    for grid, _ in sorted(to_blame, key=lambda one: -one[0].path.count(".")):  # the innermost field first
        if _is_in(error.path, grid.path):
            return SpecError(grid.told + error.path.removeprefix(grid.path), error.value, error.expected)
    chosen = ", ".join(f"{grid.path}={flat_value(value)}" for grid, value in settings)
    return SpecError(error.path, error.value, error.expected + (f" (with {chosen})" if chosen else ""))


def flat_value(value: Any) -> Any:
    """A value as a cell of a table."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "name"):
        return value.name
    if isinstance(value, Mapping) and (value.get("label") or value.get("name")):
        return value.get("label") or value["name"]
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def _name(fields: Mapping[str, Any]) -> str:
    name = fields.get("name")
    return name if isinstance(name, str) and name else "sweep"
