"""Spec field of the placement of ranks on a network: a rule, a search, or the place of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from syncline.errors import SpecError, one_of
from syncline.fields import refusal

PlacementRule = Literal["given", "stages-inside", "replicas-inside", "search"]
"""``given``: rank r K + k of stage k of replica r lies where the network says. ``stages-inside``: the stages of a
replica are neighbours, so that replicas average across places. ``replicas-inside``: the replicas of a stage are
neighbours, so that stages send across places. ``search``: the fastest placement that a local search finds.
"""

RULES: tuple[str, ...] = get_args(PlacementRule)

EXPECTED = f"one of {', '.join(RULES)}, or the place of each rank: names of a matrix's places, or positions from 0"


def _placement(value: Any) -> str | tuple[str | int, ...]:
    if isinstance(value, str):
        if value not in RULES:
            raise refusal("", value, one_of(RULES, value) + "; or the place of each rank")
        return value
    names = isinstance(value, Sequence) and all(isinstance(entry, str) for entry in value)
    positions = isinstance(value, Sequence) and all(isinstance(entry, int) and entry is not True for entry in value)
    if not value or not (names or positions):
        raise refusal("", value, EXPECTED)
    return tuple(value)


PlacementField = Annotated[Any, BeforeValidator(_placement)]
"""A rule's name, or the place of each rank: names of a matrix's places, or positions on the network from 0."""


def positions_of(placement: Sequence[str | int], ranks: int, places: Sequence[str] | None) -> list[int]:
    """Return the position of each rank on a network.

    Args:
        placement: the name of a place, or the position from 0, of each rank.
        ranks: number of ranks.
        places: name of the place at each position of the network; None if its positions have no names.

    Raises:
        SpecError: another number of ranks, an unknown place, more ranks in a place than it has workers, or a position
            twice.
    """
    if len(placement) != ranks:
        raise SpecError("placement", len(placement), f"an entry for each of the {ranks} ranks (stages times replicas)")
    numbers = [entry for entry in placement if isinstance(entry, int)]
    if numbers:
        if len(set(numbers)) < ranks or min(numbers) < 0:
            raise SpecError("placement", numbers, "different positions, from 0")
        return numbers
    if places is None:
        raise SpecError("placement", placement[0], "positions from 0: only a matrix has places with names")
    free: dict[str, list[int]] = {place: [] for place in dict.fromkeys(places)}
    for position, place in enumerate(places):
        free[place].append(position)
    positions = []
    for name in map(str, placement):
        if name not in free:
            raise SpecError("placement", name, one_of(tuple(free), name))
        if not free[name]:
            raise SpecError("placement", name, f"at most {list(places).count(name)} ranks in {name}, its workers")
        positions.append(free[name].pop(0))
    return positions
