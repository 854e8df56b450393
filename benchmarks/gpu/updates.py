"""The kernels of updates one by one: products of fp32 matrices, decompositions, elementwise passes, and dispatches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.optimizers import parameters
from benchmarks.gpu.parts import Row, one_line
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import timed, wait
from syncline.optim.demo import change_basis, dct_matrix
from syncline.optim.matrices import NEWTON_SCHULZ, newton_schulz, orthonormal_columns
from syncline.optim.rotation import exact_basis, power_basis

SIDES = (512, 768, 1024, 1536, 2048, 3072, 4096, 5632)
RECTANGLES = ((768, 3072), (1024, 4096), (2048, 5632), (4096, 11008))
"""Shorter and longer side of matrices of transformers."""

THIN = ((768, 192, 768), (768, 192, 3072), (1024, 256, 4096), (2048, 512, 2048), (2048, 512, 5632), (4096, 1024, 4096))
"""Shorter side, rank and longer side of matrices with factors."""

QR_SIDES = (
    (512, 128), (768, 192), (1024, 128), (1024, 256), (1024, 512), (2048, 64), (2048, 256), (2048, 512), (4096, 128),
    (4096, 256), (4096, 512), (4096, 1024), (5632, 512), (11008, 256), (512, 512), (768, 768), (1024, 1024),
    (1536, 1536), (2048, 2048), (3072, 3072),
)  # fmt: skip
"""Rows and columns of decomposed matrices."""

STACKED = ((8, 64, 64), (8, 128, 128), (8, 256, 64), (8, 256, 256), (8, 512, 512), (8, 2048, 512))
EIGENVECTORS = ((1, 256), (8, 256), (1, 512), (8, 512), (1, 1536), (1, 2048))
ELEMENTS = (2**16, 2**20, 2**22, 2**25)
BLOCK, KEPT = 4096, 32  # of DeMo
DISPATCHES = 300


def updates(setting: Setting) -> Iterator[Row]:
    """Yield a row per kernel and shape."""
    for part in (_dispatches, _elementwise, _products, _decompositions, _lists):
        yield from part(setting)


def _row(facts: Row, work: Callable[[], object], setting: Setting, calls: int = 3) -> Row:
    """Return the facts with times; a kernel that the device cannot run has ``failed`` instead."""
    try:
        return facts | timed(work, setting.on, calls=calls, repeats=3, longest_s=0.25)
    except torch.cuda.OutOfMemoryError:
        return facts | {"out_of_memory": True}
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return facts | {"failed": one_line(error)}


def _host_s(work: Callable[[], object], setting: Setting, count: int) -> float:
    """Return the seconds in which the host dispatches one of ``count`` calls, while the device may still compute."""
    wait(setting.on)
    start_s = time.perf_counter()
    for _ in range(count):
        work()
    seconds = (time.perf_counter() - start_s) / count
    wait(setting.on)
    return seconds


def _dispatches(setting: Setting) -> Iterator[Row]:
    """Yield the seconds in which the host dispatches one operation on small tensors, and one on lists of tensors."""
    x, y = (torch.rand(1, 64, 64, device=setting.on) for _ in range(2))
    index = torch.zeros(1, 64, 8, dtype=torch.int64, device=setting.on)
    works: dict[str, Callable[[], object]] = {
        "zero_": x.zero_,
        "mul": lambda: x * 2.0,
        "add_": lambda: x.add_(y),
        "lerp": lambda: torch.lerp(x, y, 0.5),
        "addcmul_": lambda: x.addcmul_(y, y, value=0.1),
        "where": lambda: torch.where(x == 0, 0.0, y),
        "norm": lambda: x.norm(dim=(-2, -1), keepdim=True),
        "abs and amax": lambda: x.flatten(-2).abs().amax(-1),
        "matmul": lambda: x @ y.mT,
        "cat": lambda: torch.cat([x, y], dim=-1),
        "to int64": lambda: x.to(torch.int64),
        "topk": lambda: x.topk(8, dim=-1, sorted=False),
        "sort": lambda: x.sort(dim=-1),
        "gather": lambda: x.gather(-1, index),
        "scatter_": lambda: x.scatter_(-1, index, 0.0),
        "view and transpose": lambda: x.reshape(1, 8, 8, 8, 8).permute(0, 1, 3, 2, 4),
        "qr": lambda: torch.linalg.qr(x),
        "item": x[0, 0, 0].item,
    }
    count = 3 if setting.tiny else DISPATCHES
    for name, work in works.items():
        _host_s(work, setting, 3)
        each = sorted(_host_s(work, setting, count) for _ in range(3))
        yield {"kernel": "dispatch", "operation": name, "median_s": each[1], "min_s": each[0], "repeats": 3}


def _lists(setting: Setting) -> Iterator[Row]:
    """Yield operations on lists of all parameters of a model: their seconds on the device, and of the host."""
    for shape in setting.models:
        xs = [parameter.data for parameter in parameters(shape, setting.on).values()]
        for name, (width, work) in _on_lists(xs).items():
            facts: Row = {"kernel": "foreach", "operation": name, "model": shape.name, "tensors": len(xs)}
            row = _row(facts | {"nbytes": width * shape.parameters}, work, setting)
            yield row | {"host_s": min(_host_s(work, setting, 1) for _ in range(3))}


Works = dict[str, tuple[float, Callable[[], object]]]
"""Bytes per element that an operation reads and writes, and the operation, by name."""


def _on_lists(xs: list[Tensor]) -> Works:
    """Return the operations of elementwise updates on all tensors of a model."""
    ys, zs = ([torch.rand_like(x) for x in xs] for _ in range(2))
    return {
        "mul": (8, lambda: torch._foreach_mul(xs, 0.5)),
        "mul_": (8, lambda: torch._foreach_mul_(ys, 0.999)),
        "lerp_": (12, lambda: torch._foreach_lerp_(zs, xs, 0.1)),
        "add_": (12, lambda: torch._foreach_add_(zs, xs, alpha=0.1)),
        "addcmul_": (16, lambda: torch._foreach_addcmul_(zs, xs, xs, value=0.001)),
        "sqrt": (8, lambda: torch._foreach_sqrt(ys)),
        "add number_": (8, lambda: torch._foreach_add_(ys, 1e-8)),
        "div_": (12, lambda: torch._foreach_div_(zs, ys)),
    }


def _elementwise(setting: Setting) -> Iterator[Row]:
    """Yield operations that the memory limits, on one tensor."""
    for count in ELEMENTS[:1] if setting.tiny else ELEMENTS:
        for name, (width, work) in _on_elements(count, setting.on).items():
            facts: Row = {"kernel": "elementwise", "operation": name, "shape": [count], "nbytes": width * count}
            yield _row(facts, work, setting)


def _on_elements(count: int, device: torch.device) -> Works:
    """Return operations on ``count`` elements, and on the largest of each block."""
    x, y, z = (torch.rand(1, count // 256, 256, device=device) for _ in range(3))
    blocks, integers = x.view(1, -1, BLOCK), x.mul(9).to(torch.int64)
    index = blocks.topk(KEPT, dim=-1).indices
    kept, target = blocks[..., :KEPT].clone(), z.view(1, -1, BLOCK)
    order = torch.rand(1, 256, device=device).argsort(dim=-1)
    columns = order.unsqueeze(-2).expand_as(x)
    return {
        "mul": (8, lambda: x * 0.5),
        "add": (12, lambda: x + y),
        "add_": (12, lambda: z.add_(x)),
        "lerp_": (12, lambda: z.lerp_(x, 0.1)),
        "addcmul_": (16, lambda: z.addcmul_(x, x, value=0.1)),
        "sign": (8, x.sign),
        "log_": (8, z.log_),
        "exp_": (8, z.exp_),
        "round": (8, x.round),
        "clone": (8, x.clone),
        "copy of a transpose": (8, x.mT.contiguous),
        "cut into blocks": (8, lambda: x.view(1, -1, 16, 16, 16).permute(0, 1, 3, 2, 4).contiguous()),
        "gather of columns": (16, lambda: x.gather(-1, columns)),
        "zero_": (4, z.zero_),
        "greater than 0": (5, lambda: x > 0),
        "where": (14, lambda: torch.where(x > 0, x, 0.0)),
        "to int64": (12, lambda: x.to(torch.int64)),
        "to int8": (5, lambda: x.to(torch.int8)),
        "int64 add": (16, lambda: integers + 1),
        "int64 to fp32": (12, lambda: integers.to(torch.float32)),
        "norm": (4, lambda: x.norm(dim=(-2, -1), keepdim=True)),
        "mean": (4, x.mean),
        "amax": (4, lambda: x.flatten(1).amax(1)),
        "sum of columns": (4, lambda: x.sum(-2)),
        "norm of columns": (4, lambda: x.norm(dim=-2, keepdim=True)),
        "topk": (4, lambda: blocks.topk(KEPT, dim=-1, sorted=False)),
        "sort of indices": (32 * KEPT / BLOCK, lambda: index.sort(dim=-1)),
        "gather": (16 * KEPT / BLOCK, lambda: blocks.gather(-1, index)),
        "scatter_add_": (20 * KEPT / BLOCK, lambda: target.scatter_add_(-1, index, kept)),
    }


def _products(setting: Setting) -> Iterator[Row]:
    """Yield products of one matrix or of DeMo's blocks, and Newton-Schulz iterations, by number format."""
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("fp32", "tf32", "bf16"):
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            dtype = setting.half if precision == "bf16" else torch.float32
            for kernel, shape, work in _multiplying(setting, dtype):
                yield _row({"kernel": kernel, "precision": precision, "shape": list(shape)}, work, setting)
    finally:
        torch.set_float32_matmul_precision(before)


def _multiplying(setting: Setting, dtype: torch.dtype) -> Iterator[tuple[str, tuple[int, ...], Callable[[], object]]]:
    """Yield name, shape and work of products of matrices in a number format."""
    sides = SIDES[:1] if setting.tiny else SIDES
    shapes = [(d, d, d) for d in sides]
    for short, long in () if setting.tiny else RECTANGLES:
        shapes += [(short, short, long), (short, long, short), (long, long, short)]
    for short, rank, long in () if setting.tiny else THIN:
        shapes += [(long, rank, short), (short, rank, long), (long, short, rank)]
    for m, n, k in shapes:
        a, b = (torch.randn(1, *size, device=setting.on, dtype=dtype) for size in ((m, k), (n, k)))
        yield "product", (m, n, k), partial(torch.matmul, a, b.mT)
    for m, n in [(d, d) for d in sides] + ([] if setting.tiny else [*RECTANGLES]):
        x = torch.randn(1, m, n, device=setting.on)
        is_wide = dtype == torch.float32
        yield "newton-schulz", (1, m, n), partial(newton_schulz, x) if is_wide else partial(polar_factor_in, x, dtype)
    for count in (4,) if setting.tiny else (144, 576, 1024, 9216):
        blocks = torch.randn(1, count, 64, 64, device=setting.on, dtype=dtype)
        matrix = dct_matrix(64).to(blocks)
        yield "products of blocks", (count, 64, 64), partial(change_basis, blocks, [matrix, matrix])


def polar_factor_in(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return Muon's polar factor by iterations in 16 bits, whose sums are part of the products, as in torch's Muon."""
    a, b, c = NEWTON_SCHULZ
    y = (x.mT if x.shape[-2] > x.shape[-1] else x).to(dtype)
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y.mT if x.shape[-2] > x.shape[-1] else y).to(x.dtype)


def cholesky_columns(x: Tensor) -> Tensor:
    """Return orthonormal columns of ``(..., m, r)`` by two Cholesky decompositions of ``X^T X`` (CholeskyQR2)."""
    for _ in range(2):
        lower = torch.linalg.cholesky_ex(x.mT @ x).L
        x = torch.linalg.solve_triangular(lower.mT, x, upper=True, left=False)
    return x


def _decompositions(setting: Setting) -> Iterator[Row]:
    """Yield QR decompositions by Householder reflections and by Cholesky, power iterations, and eigenvectors."""
    one = [(1, *sides) for sides in QR_SIDES]
    for shape in STACKED[:1] if setting.tiny else [*STACKED, *one]:
        x = torch.randn(*shape, device=setting.on)
        for name, work in (("qr", orthonormal_columns), ("qr by cholesky", cholesky_columns)):
            yield _row({"kernel": name, "shape": list(shape)}, partial(work, x), setting, calls=1)
    for length in () if setting.tiny else (512, 1536, 2048):
        x = torch.randn(1, length, length, device=setting.on)
        work = partial(power_basis, x @ x.mT, orthonormal_columns(x))
        yield _row({"kernel": "power iteration and qr", "shape": [1, length, length]}, work, setting, calls=1)
    for count, length in () if setting.tiny else EIGENVECTORS:
        x = torch.randn(count, length, length, device=setting.on)
        facts: Row = {"kernel": "eigh", "shape": [count, length, length]}
        yield _row(facts, partial(exact_basis, x @ x.mT), setting, calls=1)
