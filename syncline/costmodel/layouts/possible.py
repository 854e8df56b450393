"""Enumeration of the layouts of a model on a number of workers."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.layout import Layout
from syncline.errors import SpecError


def possible_layouts(
    model: ModelShape,
    workers: int,
    *,
    max_tensor: int = 8,
    max_pipeline: int = 64,
    max_context: int = 1,
    chunks: tuple[int, ...] = (1,),
) -> Iterator[Layout]:
    """Yield every layout whose replicas use all P workers, with expert parallelism if the model has experts.

    Args:
        model: shape of the model.
        workers: P.
        max_tensor: largest t, usually the workers of a node.
        max_pipeline: largest k.
        max_context: largest c.
        chunks: values of v to try in layouts with a pipeline.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> [one.describe() for one in possible_layouts(MODELS["gpt2"], 4, max_tensor=2, max_pipeline=1)]
    ['one worker', 'data 2', 'data 4', 'tensor 2', 'tensor 2, data 2']
    """
    for t in _divisors(workers, max_tensor):
        for c in _divisors(workers // t, max_context):
            for k in _divisors(workers // (t * c), min(max_pipeline, model.layers)):
                for d in _divisors(workers // (t * c * k), workers):
                    experts = _divisors(c * d, model.experts) if model.experts > 1 else [1]
                    for e in experts:
                        for v in chunks if k > 1 else (1,):
                            layout = Layout(t, c, d, k, e, v)
                            if _can_be(layout, model):
                                yield layout


def _divisors(number: int, limit: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0]


def _can_be(layout: Layout, model: ModelShape) -> bool:
    try:
        layout.check(model)
    except SpecError:
        return False
    return True
