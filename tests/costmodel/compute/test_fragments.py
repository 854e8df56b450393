"""Fragments of a model: every tensor is in one of them, and spans are where a backward pass makes their gradients."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import model_fragments
from syncline.costmodel.compute.tensors import balanced_parts

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=24)


@given(sizes, st.integers(1, 6), st.integers(1, 4))
def test_fragments_share_out_the_tensors_and_the_gradient(elements: list[int], fragments: int, strides: int) -> None:
    parts = model_fragments(elements, fragments, strides)
    assert len(parts) == fragments
    assert sorted(index for part in parts for index in part.tensors) == list(range(len(elements)))
    ends = sorted(span for part in parts for span in part.spans)
    assert ends[0][0] == 0 and ends[-1][1] == 1
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    for part in parts:
        share = sum(elements[index] for index in part.tensors) / sum(elements)
        assert abs(sum(end - begin for begin, end in part.spans) - share) < 1e-12
        assert list(part.spans) == sorted(part.spans)


@given(sizes, st.integers(1, 9))
def test_contiguous_fragments_are_balanced_parts(elements: list[int], fragments: int) -> None:
    assert [part.tensors for part in model_fragments(elements, fragments)] == balanced_parts(elements, fragments)


def test_layers_of_a_fragment_lie_as_many_layers_apart_as_there_are_fragments() -> None:
    """24 layers in 8 fragments of 3, as the model of 1B parameters of Douillard et al. has them."""
    layers = [tensor for _ in range(24) for tensor in (4, 8)]
    for number, fragment in enumerate(model_fragments(layers, 8, strides=3)):
        assert sorted({index // 2 for index in fragment.tensors}) == [number, number + 8, number + 16]
