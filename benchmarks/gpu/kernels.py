"""What the optimizers spend their time in, alone: decompositions, DeMo's transform and choice, packing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks import wire
from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import timed
from syncline.costmodel import dion_rank
from syncline.optim.demo import block_shape, change_basis, dct_matrix, from_blocks, to_blocks
from syncline.optim.matrices import newton_schulz, orthonormal_columns
from syncline.optim.rotation import exact_basis, power_basis

RANK_FRACTION = 0.25  # of Dion
CHUNK, KEPT = 64, 32  # of DeMo


def kernels(setting: Setting) -> Iterator[Row]:
    """One row per kernel and size; of packing per wire format."""
    yield from _dion(setting)
    yield from _demo(setting)
    yield from _packing(setting)
    yield from _rotations(setting)  # the slowest last


def _row(kernel: str, shape: tuple[int, ...], work: Callable[[], object], setting: Setting, calls: int = 4) -> Row:
    took = timed(work, setting.on, calls=calls, repeats=5, longest_s=1.0)
    return {"kernel": kernel, "shape": list(shape), **took}


def _sides(setting: Setting) -> list[tuple[int, int]]:
    """Rows and columns of the models' matrices."""
    return sorted({tensor.shape for model in setting.models for tensor in model.tensors if tensor.is_matrix})  # type: ignore[misc]


def _dion(setting: Setting) -> Iterator[Row]:
    for rows, columns in _sides(setting):
        if rows < columns:
            continue  # worked on transposed
        rank = dion_rank(rows, columns, RANK_FRACTION)
        for together in (1, 8):
            x = torch.randn(together, rows, rank, device=setting.on)
            yield _row("qr", tuple(x.shape), lambda: orthonormal_columns(x), setting)  # noqa: B023
        y = torch.randn(1, rows, columns, device=setting.on)
        yield _row("newton-schulz", tuple(y.shape), lambda: newton_schulz(y), setting)  # noqa: B023


def _demo(setting: Setting) -> Iterator[Row]:
    for shape in _sides(setting):
        x = torch.randn(1, *shape, device=setting.on)
        sizes = block_shape(shape, CHUNK)
        forth: list[Tensor | None] = [dct_matrix(size).to(x) for size in sizes]
        back = [None if matrix is None else matrix.mT for matrix in forth]
        blocks = change_basis(to_blocks(x, sizes), forth)
        kept = min(KEPT, sizes[0] * sizes[1])

        def both(x=x, sizes=sizes, forth=forth, back=back, shape=shape) -> Tensor:  # type: ignore[no-untyped-def]
            return from_blocks(change_basis(change_basis(to_blocks(x, sizes), forth), back), shape)

        def chosen(blocks=blocks, kept=kept) -> Tensor:  # type: ignore[no-untyped-def]
            return blocks.flatten(2).abs().topk(kept, dim=-1, sorted=False).indices

        yield _row("dct forth and back", shape, both, setting)
        yield _row("top-k of blocks", shape, chosen, setting)


def _packing(setting: Setting) -> Iterator[Row]:
    size, rounds = (2**12, 2) if setting.tiny else (2**25, 7)
    for measured in wire.measure(size, setting.on, rounds):
        yield {"kernel": "wire format", "shape": [size], **measured._asdict()}


def _rotations(setting: Setting) -> Iterator[Row]:
    for length in sorted({side for shape in _sides(setting) for side in shape}):
        x = torch.randn(1, length, length, device=setting.on)
        symmetric = x @ x.mT
        basis = orthonormal_columns(x)
        shape = (1, length, length)
        yield _row("power iteration and qr", shape, lambda: power_basis(symmetric, basis), setting, calls=1)  # noqa: B023
        yield _row("eigh", shape, lambda: exact_basis(symmetric), setting, calls=1)  # noqa: B023
