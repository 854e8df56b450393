"""Which parameters a choice of layers means."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from syncline.errors import SpecError


def first_and_last_layers(names: Sequence[str]) -> list[bool]:
    """Which parameters belong to the first or to the last layer of a model.

    A layer is what stands before the last dot of a name; ``embedding`` alone is a layer too.

    Args:
        names: the parameters' names, in the model's order.

    >>> first_and_last_layers(["embedding", "0.up", "0.down", "head.weight", "head.bias"])
    [True, False, False, True, True]
    """
    layers = [name.rpartition(".")[0] or name for name in names]
    return [layer in (layers[0], layers[-1]) for layer in layers]


def chosen_layers(names: Sequence[str], layers: str | Sequence[str]) -> list[bool]:
    """Which parameters belong to the layers that were chosen.

    Args:
        names: the parameters' names, in the model's order.
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


def is_of(name: str, patterns: Sequence[str]) -> bool:
    """Whether a parameter's name matches one of the patterns; without any, every name does.

    >>> is_of("0.up", ["*.up", "*.down"]), is_of("0.qkv", ["*.up"]), is_of("0.qkv", [])
    (True, False, True)
    """
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
