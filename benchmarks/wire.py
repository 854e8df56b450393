"""What packing costs: encoding and decoding in each wire format, beside a copy of the same tensor in the same run.

    python -m benchmarks.wire [--size 16777216] [--threads 1] [--device cpu] [--rounds 11] [--json]

A piece of work goes from a tensor in fp32 to what travels, and from there to fp32 again. Throughput is bytes of the
fp32 tensor per second. It is measured twice: into memory that is held, beside ``y.copy_(x)``, and into new memory,
beside ``x.clone()``; a large tensor's first touch costs more than most formats. The formats take turns; medians, of
the thread's own seconds on one CPU thread, else of the clock's.

Signs are taken from the tensor (``x > 0``). Integers are there already, held in fp32 as quantisers leave them. Sparse
pairs are 32 of each 4,096 values, with a 16-bit index and bf16, scattered into zeros; their row *selected* also looks
for the largest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.command import parser_of, show
from syncline.comm import BF16, DENSE, FP16, PackedIntegers, PackedSigns, SparsePairs, WireFormat

BLOCK, KEPT = 4096, 32
COPY = "copy"


class Format(NamedTuple):
    name: str
    encode: Callable[[], Tensor]
    decode: Callable[[Tensor, Tensor], object]  # (encoded, memory to fill)


class Measured(NamedTuple):
    device: str
    format: str
    bits_per_value: float
    held_gb_per_s: float
    held_over_copy: float
    new_gb_per_s: float
    new_over_copy: float


def formats(x: Tensor) -> list[Format]:
    """All formats on the values ``(n,)``, with n a multiple of ``BLOCK``; the copy first."""
    dense: list[tuple[str, WireFormat]] = [(COPY, DENSE), ("bf16", BF16), ("fp16", FP16)]
    rounded = [Format(name, lambda w=w: w.encode(x), lambda e, out: out.copy_(e)) for name, w in dense]  # type: ignore[misc]
    return [*rounded, signs(x), *(integers(x, bits) for bits in (2, 4, 5, 8)), *sparse(x)]


def signs(x: Tensor) -> Format:
    packed, n = PackedSigns(), x.numel()
    return Format("packed signs", lambda: packed.encode(x > 0), lambda e, out: packed.decode(e, n, x.dtype, out=out))


def integers(x: Tensor, bits: int) -> Format:
    packed, n = PackedIntegers(bits), x.numel()
    levels = torch.randint_like(x, 2**bits)
    name = f"{bits}-bit integers"
    return Format(name, lambda: packed.encode(levels), lambda e, out: packed.decode(e, n, x.dtype, out=out))


def sparse(x: Tensor) -> list[Format]:
    form, blocks = SparsePairs(16, "bf16"), x.view(-1, BLOCK)

    def select() -> Tensor:
        return blocks.abs().topk(KEPT, dim=1, sorted=False).indices

    def encode(index: Tensor) -> Tensor:
        return form.encode(index, blocks.gather(1, index), BLOCK)

    def decode(encoded: Tensor, out: Tensor) -> Tensor:
        return out.zero_().view_as(blocks).scatter_(1, *form.decode(encoded, KEPT, BLOCK, out.dtype))

    kept = select()
    return [
        Format("sparse pairs", lambda: encode(kept), decode),
        Format("sparse pairs, selected", lambda: encode(select()), decode),
    ]


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of the thread where there is only one, which others on a shared machine do not lengthen; else of the clock."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        start_s = time.thread_time()
        work()
        return time.thread_time() - start_s
    synchronise: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronise()
    start_s = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start_s


def measure(size: int, device: torch.device, rounds: int) -> list[Measured]:
    """One row per format, for ``size`` values rounded up to whole blocks."""
    x = torch.randn(-(-size // BLOCK) * BLOCK, device=device)
    held = torch.empty_like(x)
    rows = formats(x)
    held_s: dict[str, list[float]] = {row.name: [] for row in rows}
    new_s: dict[str, list[float]] = {row.name: [] for row in rows}
    for _ in range(rounds + 1):
        for name, encode, decode in rows:
            held_s[name].append(seconds(lambda: decode(encode(), held), device))  # noqa: B023
            new_s[name].append(seconds(lambda: decode(encode(), torch.empty_like(x)), device))  # noqa: B023
    # The first round fills caches and tables.
    held_median, new_median = ({name: statistics.median(s[1:]) for name, s in t.items()} for t in (held_s, new_s))
    gigabytes = x.numel() * x.element_size() / 1e9
    return [
        Measured(
            str(device),
            row.name,
            8 * (encoded := row.encode()).numel() * encoded.element_size() / x.numel(),
            gigabytes / held_median[row.name],
            held_median[COPY] / held_median[row.name],
            gigabytes / new_median[row.name],
            new_median[COPY] / new_median[row.name],
        )
        for row in rows
    ]


def table(measured: Sequence[Measured]) -> str:
    lines = [
        "| device | format | bits per value | held memory, GB/s | of a copy | new memory, GB/s | of a copy |",
        "|---|---|---|---|---|---|---|",
    ]
    for m in measured:
        lines.append(
            f"| {m.device} | {m.format} | {m.bits_per_value:.3g} | {m.held_gb_per_s:.3g} | {m.held_over_copy:.2f} | "
            f"{m.new_gb_per_s:.3g} | {m.new_over_copy:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.wire", __doc__)
    parser.add_argument("--size", type=int, default=2**24, help="values of the fp32 tensor")
    parser.add_argument("--threads", type=int, default=1, help="of torch on the CPU")
    parser.add_argument("--device", help="cpu or cuda; the default is the CPU, and the GPU where there is one")
    parser.add_argument("--rounds", type=int, default=11, help="repetitions of which medians are taken")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    devices = [options.device] if options.device else ["cpu", "cuda"][: 1 + torch.cuda.is_available()]
    measured = [row for device in devices for row in measure(options.size, torch.device(device), options.rounds)]
    show(measured, table, options.json)


if __name__ == "__main__":
    main()
