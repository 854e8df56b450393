"""The shapes of a model's parameters, their cut into fragments, and masks that select parameters by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import NamedTuple

from syncline.errors import SpecError


class TensorShape(NamedTuple):
    """The shape of one parameter of a model.

    Attributes:
        name: name in the model.
        shape: lengths of its dimensions.
        is_matrix: whether update rules for matrices such as Muon's and Dion's apply. They apply to the weights of
            convolutions, ``(out, in, *kernel)`` as a matrix of ``out`` rows, but not to embeddings and output heads.
    """

    name: str
    shape: tuple[int, ...]
    is_matrix: bool = False

    @property
    def elements(self) -> int:
        """Return the number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """Return the rows and columns of the tensor viewed as a matrix, see `matrix_sides`."""
        return matrix_sides(self.shape)

    def is_worth_factors(self, rank: int) -> bool:
        """Return whether low-rank factors are smaller than the matrix, see the function `is_worth_factors`."""
        return is_worth_factors(*self.sides, rank)


class TensorShapes(tuple[TensorShape, ...]):
    """The shapes of a model's parameters without empty ones; the number of their elements is summed once."""

    @cached_property
    def elements(self) -> int:
        """Return the number of elements of all tensors."""
        return sum(tensor.elements for tensor in self)


ADAPTED = {
    "query": "qkv", "key": "qkv", "value": "qkv", "qkv": "qkv", "query_down": "qkv", "query_up": "qkv",
    "key_value_down": "qkv", "key_value_up": "qkv", "out": "out", "gate": "mlp", "up": "mlp", "down": "mlp",
}  # fmt: skip
"""Part of a layer to which a matrix belongs, by the last component of its name; other matrices have no adapters."""


class Adapters(NamedTuple):
    """Low-rank adapters (LoRA): beside a frozen matrix (out, in) train only ``(rank, in)`` and ``(out, rank)``.

    Source: E. Hu et al., "LoRA" (2021), section 4.1.

    Attributes:
        rank: r, rank of the adapters.
        parts: parts of each layer that have adapters: ``qkv``, ``out``, ``mlp``.
    """

    rank: int
    parts: tuple[str, ...] = ("qkv", "out", "mlp")

    def has(self, name: str) -> bool:
        """Return whether the matrix with a name has low-rank adapters."""
        _, _, last_component = name.rpartition(".")
        return ADAPTED.get(last_component) in self.parts

    def trained_tensors(self, tensors: Sequence[TensorShape]) -> list[TensorShape]:
        """Return the low-rank matrices that train beside frozen tensors, in order.

        >>> [tensor.shape for tensor in Adapters(4).trained_tensors([TensorShape("0.out", (8, 6), is_matrix=True)])]
        [(4, 6), (8, 4)]
        """
        trained = []
        for tensor in tensors:
            if tensor.is_matrix and self.has(tensor.name):
                rows, columns = tensor.sides
                trained.append(TensorShape(f"{tensor.name}_in", (self.rank, columns), is_matrix=True))
                trained.append(TensorShape(f"{tensor.name}_adapter", (rows, self.rank), is_matrix=True))
        return trained


def matrix_sides(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a tensor viewed as a matrix: the first dimension, and the product of the others.

    >>> matrix_sides((768, 3072)), matrix_sides((16, 3, 5, 5))
    ((768, 3072), (16, 75))
    """
    return shape[0], math.prod(shape[1:])


def balanced_parts(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Return a list of tensors cut into F runs of about equal size, none empty if there are at least F tensors.

    The middle of a tensor decides its run, unless a run would remain empty.

    Args:
        sizes: number of elements of each tensor, in order.
        parts: F, number of runs.

    Returns:
        The indices of the tensors of each run.

    >>> balanced_parts([8, 1, 1, 2], 3)
    [[0], [1], [2, 3]]
    """
    total_elements = max(sum(sizes), 1)
    runs: list[list[int]] = [[] for _ in range(parts)]
    run, elements_before = -1, 0
    for index, size in enumerate(sizes):
        run_of_middle = min((2 * elements_before + size) * parts // (2 * total_elements), parts - 1)
        least_run = parts - (len(sizes) - index)  # so that each later run gets a tensor
        # Do not go back before the last tensor's run, and skip none.
        run = min(max(run_of_middle, least_run, run, 0), run + 1)
        runs[run].append(index)
        elements_before += size
    return runs


class Fragment(NamedTuple):
    """A part of a model that workers average on a schedule of its own, as in Streaming DiLoCo.

    Attributes:
        tensors: indices of its tensors.
        spans: ascending parts (begin, end) of the gradient that the fragment covers, as fractions of its elements in
            the order of the backward pass, which goes from the last tensor to the first.
    """

    tensors: list[int]
    spans: tuple[tuple[float, float], ...]


def model_fragments(sizes: Sequence[int], fragments: int, strides: int = 1) -> list[Fragment]:
    """Return F fragments of about equal size; each has ``strides`` runs of neighbouring tensors, F runs apart.

    Args:
        sizes: number of elements of each tensor, in the order of the forward pass.
        fragments: F, number of fragments.
        strides: number of runs of neighbouring tensors in each fragment; 1 gives contiguous fragments.

    >>> [fragment.tensors for fragment in model_fragments([2, 2, 2, 2], 2, strides=2)]
    [[0, 2], [1, 3]]
    >>> model_fragments([2, 2, 2, 2], 2, strides=2)[0].spans
    ((0.25, 0.5), (0.75, 1.0))

    Source: Streaming DiLoCo (Douillard et al., 2025), section 3.1: fragments of several layers, strided over the depth.
    """
    return list(_model_fragments(tuple(sizes), fragments, strides))


@lru_cache(maxsize=64)  # each method with fragments asks for them
def _model_fragments(sizes: tuple[int, ...], fragments: int, strides: int) -> list[Fragment]:
    """Return the fragments of `model_fragments`, from a cache, which needs ``sizes`` as a tuple."""
    total_elements = max(sum(sizes), 1)
    runs = balanced_parts(sizes, fragments * strides)
    model_parts = []
    for fragment in range(fragments):
        tensors: list[int] = []
        spans = []
        for run in filter(None, runs[fragment::fragments]):  # every F-th run; with few tensors some are empty
            tensors += run
            # In the backward pass the elements of later tensors come before those of the run.
            begin, end = sum(sizes[run[-1] + 1 :]), sum(sizes[run[0] :])
            spans.append((begin / total_elements, end / total_elements))
        model_parts.append(Fragment(tensors, tuple(reversed(spans))))
    return model_parts


def largest_divisor(length: int, limit: int) -> int:
    """Return the largest divisor of ``length`` that is not above ``limit``.

    >>> largest_divisor(768, 64), largest_divisor(50, 64), largest_divisor(97, 64)
    (64, 50, 1)
    """
    divisor = min(length, limit)
    while length % divisor:
        divisor -= 1
    return divisor


def is_worth_factors(rows: int, columns: int, rank: int) -> bool:
    """Return whether two low-rank factors of an m x n matrix have fewer elements than it: ``(m + n) r < m n``."""
    return (rows + columns) * rank < rows * columns


def dion_rank(rows: int, columns: int, fraction: float) -> int:
    """Return the rank of the factors by which Dion replaces an m x n matrix: ``ceil(fraction min(m, n))``, at least 1.

    >>> dion_rank(768, 3072, 0.25), dion_rank(8, 3, 0.5)
    (192, 2)
    """
    return max(1, math.ceil(fraction * min(rows, columns)))


def chosen_layers(names: Sequence[str], layers: str | Sequence[str]) -> list[bool]:
    """Return a mask over parameters that selects those of the chosen layers.

    The layer of a parameter is the part of its name before the last dot; a name without a dot is a layer by itself.

    Args:
        names: names of the parameters, in the model's order.
        layers: ``all``, ``none``, ``first-and-last``, or patterns of names.

    >>> chosen_layers(["embedding", "0.up", "0.down", "head"], ["0.*"])
    [False, True, True, False]
    >>> chosen_layers(["embedding", "0.up", "0.down", "head.weight", "head.bias"], "first-and-last")
    [True, False, False, True, True]
    """
    if layers in ("all", "none"):
        return [layers == "all"] * len(names)
    if isinstance(layers, str):
        if layers != "first-and-last":
            raise SpecError("momentum_layers", layers, "'all', 'none', 'first-and-last' or a list of patterns of names")
        layer_names = [name.rsplit(".", 1)[0] for name in names]
        return [layer in (layer_names[0], layer_names[-1]) for layer in layer_names]
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
