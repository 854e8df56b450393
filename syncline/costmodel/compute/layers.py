"""Masks over a model's parameters for a choice of layers or of name patterns."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from syncline.errors import SpecError


def first_and_last_layers(names: Sequence[str]) -> list[bool]:
    """Return a mask over parameters that selects the first and the last layer of a model.

    The layer of a parameter is the part of its name before the last dot; a name without a dot is a layer by itself.

    Args:
        names: names of the parameters, in the model's order.

    >>> first_and_last_layers(["embedding", "0.up", "0.down", "head.weight", "head.bias"])
    [True, False, False, True, True]
    """
    layers = [name.rpartition(".")[0] or name for name in names]
    return [layer in (layers[0], layers[-1]) for layer in layers]


def chosen_layers(names: Sequence[str], layers: str | Sequence[str]) -> list[bool]:
    """Return a mask over parameters that selects those of the chosen layers.

    Args:
        names: names of the parameters, in the model's order.
        layers: ``all``, ``none``, ``first-and-last`` (see ``first_and_last_layers``), or patterns of names.

    Raises:
        SpecError: another choice, or a pattern that matches no name.

    >>> chosen_layers(["embedding", "0.up", "0.down", "head"], ["0.*"])
    [False, True, True, False]
    """
    if layers in ("all", "none"):
        return [layers == "all"] * len(names)
    if isinstance(layers, str):
        if layers != "first-and-last":
            raise SpecError("momentum_layers", layers, "'all', 'none', 'first-and-last' or a list of patterns of names")
        return first_and_last_layers(names)
    for pattern in layers:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SpecError("momentum_layers", pattern, f"a pattern of names, which are like {names[0]!r}")
    return [any(fnmatchcase(name, pattern) for pattern in layers) for name in names]


def matches_patterns(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a parameter's name matches one of the patterns; without patterns every name matches.

    >>> matches_patterns("0.up", ["*.up", "*.down"]), matches_patterns("0.qkv", ["*.up"]), matches_patterns("0.qkv", [])
    (True, False, True)
    """
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
