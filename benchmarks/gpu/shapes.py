"""Measure the operations of a transformer's step one by one, by shape: seconds, FLOP/s and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.parts import Row, one_line
from benchmarks.gpu.setting import Setting, dtype_name
from benchmarks.gpu.stopwatch import timed, wait

WIDTHS = (768, 1024, 2048, 4096, 8192)
TOKENS = (1024, 2048, 4096, 8192, 16384)
LAYERS = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
"""Input and output width of a GPT's products, in multiples of the model's width."""

GATED = {2048: 5504, 4096: 11008, 8192: 28672}
"""Inner width of a Llama's MLP by the model's width: TinyLlama's class, 7B (H. Touvron et al., 2023), 70B (2023)."""

SEQUENCES = (1024, 2048, 4096, 8192, 16384, 32768)
HEADS = {64: 12, 128: 32}
"""Number of heads by their size: a GPT of width 768, a Llama of width 4096."""

ATTENTION_TOKENS = 16384
VOCABULARIES = (32_000, 128_256)  # Llama 2, Llama 3
ADAM_SIZES = (2**20, 2**24, 2**27, 2**30)
ADAM_BYTES = 28  # of fp32 per parameter: reads the parameter, gradient and two moments, writes all but the gradient
LAUNCHES = 1000


def shapes(setting: Setting) -> Iterator[Row]:
    """Yield a row per operation and shape."""
    for operations in (_launches, _products, _attention, _elementwise, _vocabularies, _adam):
        yield from operations(setting)


def _row(facts: Row, work: Callable[[], object], setting: Setting, calls: int = 3) -> Row:
    """Return the facts with times and rates; a kernel that the device cannot run has ``failed`` instead."""
    try:
        took = timed(work, setting.on, calls=calls, repeats=5, longest_s=0.5)
    except torch.cuda.OutOfMemoryError:
        return facts | {"out_of_memory": True}
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return facts | {"failed": one_line(error)}
    row = facts | took
    for counted in ("flops", "nbytes"):
        if counted in facts:
            row[{"flops": "flops_per_s", "nbytes": "bytes_per_s"}[counted]] = facts[counted] / took["median_s"]
    if "flops" in facts and setting.hardware is not None and facts["precision"] == dtype_name(setting.half):
        row["mfu"] = row["flops_per_s"] / setting.hardware.peak_flops
    return row


def _launches(setting: Setting) -> Iterator[Row]:
    """Yield the seconds of one launch of a kernel without work: of the host alone, until the end, in a graph."""
    x = torch.ones(1, device=setting.on)
    count = 10 if setting.tiny else LAUNCHES

    def launch() -> None:
        for _ in range(count):
            x.zero_()

    def seconds(work: Callable[[], object], until_idle: bool) -> float:
        wait(setting.on)
        start_s = time.perf_counter()
        work()
        if until_idle:
            wait(setting.on)
        return (time.perf_counter() - start_s) / count

    works: list[tuple[str, Callable[[], object], bool]] = [
        ("launch, host alone", launch, False),
        ("launch, until idle", launch, True),
    ]
    if setting.device == "cuda":
        launch()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        works.append(("launch, in a graph", graph.replay, True))
    for operation, work, until_idle in works:
        each = sorted(seconds(work, until_idle) for _ in range(7))
        yield {"operation": operation, "median_s": each[3], "min_s": each[0], "repeats": len(each)}


def _products(setting: Setting) -> Iterator[Row]:
    """Yield the three products of a linear layer: forward, gradient of its input, gradient of its weight."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # fp32 products in TF32
    half = dtype_name(setting.half)
    try:
        for width in (32,) if setting.tiny else WIDTHS:
            layers = {name: (width * i, width * o) for name, (i, o) in LAYERS.items()}
            if width in GATED:
                layers |= {"gate and up": (width, 2 * GATED[width]), "gated down": (GATED[width], width)}
            for layer, (inputs, outputs) in layers.items():
                for tokens in (16, 32) if setting.tiny else TOKENS:
                    for precision in (half, "fp8", "tf32"):
                        if precision == "tf32" and tokens not in TOKENS[::2]:
                            continue  # twice as slow, and less often used
                        yield from _three(layer, tokens, inputs, outputs, precision, setting)
    finally:
        torch.set_float32_matmul_precision(before)


def _three(layer: str, tokens: int, inputs: int, outputs: int, precision: str, setting: Setting) -> Iterator[Row]:
    sides = {
        "forward": (tokens, outputs, inputs),
        "input gradient": (tokens, inputs, outputs),
        "weight gradient": (outputs, inputs, tokens),
    }
    for product, (m, n, k) in sides.items():
        facts: Row = {"operation": layer, "pass": product, "precision": precision, "shape": [m, n, k]}
        yield _row(facts | {"flops": 2.0 * m * n * k}, _multiplies(m, n, k, precision, setting), setting)


def _multiplies(m: int, n: int, k: int, precision: str, setting: Setting) -> Callable[[], object]:
    """Return the product ``(m, k) (k, n)``, its operands being random: zeros draw less power and run faster."""
    dtype = torch.float32 if precision == "tf32" else setting.half
    a, b = (torch.randn(*size, device=setting.on, dtype=dtype) for size in ((m, k), (n, k)))
    if precision != "fp8":
        return partial(torch.mm, a, b.mT, out=torch.empty(m, n, device=setting.on, dtype=dtype))
    scale = torch.ones((), device=setting.on)
    left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).mT  # the second operand by columns
    return partial(torch._scaled_mm, left, right, scale, scale, out_dtype=setting.half, use_fast_accum=True)


def _attention(setting: Setting) -> Iterator[Row]:
    """Yield scaled dot product attention, forward and backward, causal and not.

    A forward pass has ``4 B H T^2 D`` FLOPs, half of it with a causal mask, and a backward pass 2.5 times as many.
    """
    cuda = setting.device == "cuda"
    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION} if cuda else {"default": None}
    for size, heads in {8: 2}.items() if setting.tiny else HEADS.items():
        for sequence in (16,) if setting.tiny else SEQUENCES:
            batch = 1 if setting.tiny else max(1, ATTENTION_TOKENS // sequence)
            for causal in (True, False):
                for name, backend in backends.items():
                    facts = {
                        "operation": f"attention, {name}{', causal' if causal else ''}",
                        "precision": dtype_name(setting.half),
                        "shape": [batch, heads, sequence, size],
                    }
                    yield from _both_passes(facts, causal, backend, setting)


def _both_passes(facts: Row, causal: bool, backend: SDPBackend | None, setting: Setting) -> Iterator[Row]:
    batch, heads, sequence, size = facts["shape"]
    inputs = [
        torch.randn(batch, heads, sequence, size, device=setting.on, dtype=setting.half, requires_grad=True)
        for _ in range(3)
    ]
    flops = 4.0 * batch * heads * sequence**2 * size / (2 if causal else 1)

    def forward() -> Tensor:
        with nullcontext() if backend is None else sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*inputs, is_causal=causal)

    row = _row(facts | {"pass": "forward", "flops": flops}, forward, setting, calls=2)
    yield row
    if "median_s" in row:
        backward = _backward(forward(), inputs)
        yield _row(facts | {"pass": "backward", "flops": 2.5 * flops}, backward, setting, calls=2)


def _backward(output: Tensor, inputs: list[Tensor]) -> Callable[[], object]:
    gradient = torch.randn_like(output) if output.dim() else torch.ones_like(output)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def _elementwise(setting: Setting) -> Iterator[Row]:
    """Yield operations that only move bytes; those counted are the least: each input read, each output written once."""
    for width in (32,) if setting.tiny else (768, 2048, 4096, 8192):
        for tokens in (16,) if setting.tiny else (1024, 4096, 16384):
            make = partial(torch.randn, tokens, width, device=setting.on, dtype=setting.half)
            weight = torch.ones(width, device=setting.on, dtype=setting.half, requires_grad=True)
            x, y = make().requires_grad_(), make().requires_grad_()
            nbytes = x.numel() * x.element_size()
            facts = {"precision": dtype_name(setting.half), "shape": [tokens, width]}
            operations: list[tuple[str, Callable[[], Tensor], list[Tensor], int, int]] = [
                ("residual sum", lambda x=x, y=y: x + y, [x, y], 3, 0),  # type: ignore[misc]
                ("RMSNorm", lambda x=x, w=weight: F.rms_norm(x, w.shape, w), [x, weight], 2, 3),  # type: ignore[misc]
                ("SwiGLU", lambda x=x, y=y: F.silu(x) * y, [x, y], 3, 5),  # type: ignore[misc]
            ]
            for operation, forward, inputs, forth, back in operations:
                row = facts | {"operation": operation}
                yield _row(row | {"pass": "forward", "nbytes": forth * nbytes}, forward, setting)
                if back:
                    backward = _backward(forward(), inputs)
                    yield _row(row | {"pass": "backward", "nbytes": back * nbytes}, backward, setting)


def _vocabularies(setting: Setting) -> Iterator[Row]:
    """Yield cross-entropy of logits in half precision, as autocast computes it (in fp32), and the embedding."""
    width = 32 if setting.tiny else 4096
    for vocabulary in (64,) if setting.tiny else VOCABULARIES:
        for tokens in (16,) if setting.tiny else (4096, 8192):
            targets = torch.randint(vocabulary, (tokens,), device=setting.on)
            logits = torch.randn(tokens, vocabulary, device=setting.on, dtype=setting.half, requires_grad=True)
            nbytes = logits.numel() * logits.element_size()
            facts = {"precision": dtype_name(setting.half), "shape": [tokens, vocabulary]}
            loss = partial(_loss, logits, targets)
            row: Row = facts | {"operation": "cross-entropy"}
            yield _row(row | {"pass": "forward", "nbytes": nbytes}, loss, setting)
            yield _row(row | {"pass": "backward", "nbytes": 2 * nbytes}, _backward(loss(), [logits]), setting)
            del logits, loss
            table = torch.randn(vocabulary, width, device=setting.on, dtype=setting.half, requires_grad=True)
            rows_bytes, table_bytes = 2 * tokens * width * table.element_size(), table.numel() * table.element_size()
            row = facts | {"operation": "embedding", "shape": [tokens, vocabulary, width]}
            embed = partial(F.embedding, targets, table)
            yield _row(row | {"pass": "forward", "nbytes": rows_bytes}, embed, setting)
            back = _backward(embed(), [table])
            yield _row(row | {"pass": "backward", "nbytes": rows_bytes // 2 + table_bytes}, back, setting)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets)


def _adam(setting: Setting) -> Iterator[Row]:
    """Yield steps of AdamW on fp32 parameters: of one tensor, and of as many in 64 tensors; fused and not."""
    for size in (64,) if setting.tiny else ADAM_SIZES:
        for count in (1, 64):
            for fused in (True, False):
                params = [torch.randn(size // count, device=setting.on, requires_grad=True) for _ in range(count)]
                for param in params:
                    param.grad = torch.randn_like(param)
                kind: dict[str, Any] = {"fused": True} if fused else {"foreach": True}
                facts = {
                    "operation": f"AdamW, {next(iter(kind))}",
                    "precision": "fp32",
                    "shape": [count, size // count],
                    "nbytes": ADAM_BYTES * size,
                }
                yield _row(facts, torch.optim.AdamW(params, **kind).step, setting, calls=1)
