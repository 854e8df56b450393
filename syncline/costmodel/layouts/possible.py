"""Layouts that a model and a number of workers can have."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.layout import Layout
from syncline.errors import SpecError


def possible_layouts(
    model: ModelShape,
    workers: int,
    *,
    most_tensor: int = 8,
    most_pipeline: int = 64,
    most_context: int = 1,
    chunks: tuple[int, ...] = (1,),
) -> Iterator[Layout]:
    """Every layout whose replicas make up P workers; with experts also those that share them out.

    Args:
        model: it.
        workers: P.
        most_tensor: t at most: the workers of a node.
        most_pipeline: k at most.
        most_context: c at most.
        chunks: v, each where it can be.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> [one.describe() for one in possible_layouts(MODELS["gpt2"], 4, most_tensor=2, most_pipeline=1)]
    ['one worker', 'data 2', 'data 4', 'tensor 2', 'tensor 2, data 2']
    """
    for t in _divisors(workers, most_tensor):
        for c in _divisors(workers // t, most_context):
            for k in _divisors(workers // (t * c), min(most_pipeline, model.layers)):
                for d in _divisors(workers // (t * c * k), workers):
                    experts = _divisors(c * d, model.experts) if model.experts > 1 else [1]
                    for e in experts:
                        for v in chunks if k > 1 else (1,):
                            layout = Layout(t, c, d, k, e, v)
                            if _can_be(layout, model):
                                yield layout


def _divisors(of: int, most: int) -> list[int]:
    return [one for one in range(1, min(of, most) + 1) if of % one == 0]


def _can_be(layout: Layout, model: ModelShape) -> bool:
    try:
        layout.check(model)
    except SpecError:
        return False
    return True
