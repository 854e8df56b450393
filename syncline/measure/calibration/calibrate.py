"""``syncline calibrate``: measurements of this machine, or of a cluster under torchrun, written to a cluster file.

Each process times training steps, products, copies and wire formats while the other processes do too. A measurement
repeats the work for a time window that is cut into blocks, and takes the mean of each block: if processes share a core,
most repetitions of a short piece of work run undisturbed and a few wait for the other processes. The result is the
median over the blocks, so that a disturbance of a few blocks does not count.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import Store

from syncline.comm import WIRE_FORMATS, PackedIntegers, PackedSigns, SparsePairs
from syncline.costmodel.network.paths import Floats
from syncline.errors import SynclineError
from syncline.files import temporary_folder
from syncline.measure.calibration.cluster_file import ClusterFile, cluster_of
from syncline.measure.calibration.collective_times import Gate, spread, time_collectives
from syncline.measure.calibration.plan import Calibration, check_process_counts
from syncline.measure.launching.process import Launch, agree_on, join_local_processes
from syncline.measure.processes.rendezvous import Place, clock_offset_ns, group, host_store, store_of_environment
from syncline.measure.processes.watchdog import Failure, Progress, line_of_error, run_watched
from syncline.problems import Rows, Task

BLOCKS = 8
"""Number of blocks of a time window."""

PRODUCTS = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
"""Sizes n of square fp32 matrix products; the fastest product counts as the peak."""

COPIED_BYTES = 1 << 26
"""Bytes of a copied tensor, more than the caches hold."""

WIRE_ELEMENTS = (1 << 12, 1 << 15, 1 << 18, 1 << 20)
"""Numbers in the tensors that are encoded and decoded."""

CHUNK, NUMBERS_PER_PAIR = 4096, 8
"""For sparse formats: numbers in the chunk that an index points into; and numbers of a tensor for each sent pair."""


def block_means_s(run: Callable[[], object], window_s: float, device: torch.device, blocks: int = BLOCKS) -> Floats:
    """Return the mean seconds of one ``run`` in each block of a time window; each block has at least one run.

    Args:
        run: the function to time; it runs once before the first block.
        window_s: seconds of all blocks together.
        device: the device to synchronize with at the end of each block.
    """

    def now_s() -> float:
        """Return the time after the device has finished its queued work."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    run()
    means_s = np.empty(blocks)
    for block in range(blocks):
        begin_s, num_runs = now_s(), 0
        block_end_s = begin_s + window_s / blocks
        while num_runs == 0 or time.perf_counter() < block_end_s:
            run()
            num_runs += 1
        means_s[block] = (now_s() - begin_s) / num_runs
    return means_s


def step_seconds(task: Task, window_s: float, device: torch.device) -> Floats:
    """Return the mean seconds of computing a step's gradients, for each block of repetitions, ``(blocks,)``."""
    step_numbers = itertools.count()

    def run() -> None:
        task.step_gradients(next(step_numbers))

    for _ in range(2):  # warms up
        run()
    return block_means_s(run, window_s, device)


def product_flops_per_s(window_s: float, device: torch.device, sizes: tuple[int, ...] = ()) -> float:
    """Return the FLOP/s of fp32 matrix products, ``2 n^3`` FLOPs each, at the fastest of the sizes.

    Args:
        window_s: seconds for all sizes together.
        sizes: sizes n of the square matrices; empty: `PRODUCTS` of the device.
    """
    sizes = sizes or PRODUCTS[device.type]
    rates = []
    for size in sizes:
        a = torch.randn(size, size, device=device)
        b = torch.randn(size, size, device=device)
        run = partial(torch.mm, a, b, out=torch.empty_like(a))
        product_s = float(np.median(block_means_s(run, window_s / len(sizes), device)))
        rates.append(2 * size**3 / product_s)
    return max(rates)


def copy_bytes_per_s(window_s: float, device: torch.device, nbytes: int = COPIED_BYTES) -> float:
    """Return the bytes read and written per second by a copy within memory: twice its size divided by its time."""
    source = torch.zeros(nbytes // 4, device=device).fill_(1.0)  # the write allocates the pages of the memory
    target = torch.empty_like(source).fill_(0.0)
    return 2 * nbytes / float(np.median(block_means_s(lambda: target.copy_(source), window_s, device)))


def wire_seconds(
    window_s: float, device: torch.device, elements: tuple[int, ...] = WIRE_ELEMENTS
) -> dict[str, list[tuple[int, float, float]]]:
    """Return by wire format a tuple ``(n, encode_s, decode_s)`` for each size of tensors.

    n counts the encoded numbers. A sparse format encodes n pairs, one per `NUMBERS_PER_PAIR` numbers of the tensor.

    Args:
        window_s: seconds of the time window for each format, size and direction.
    """
    seconds: dict[str, list[tuple[int, float, float]]] = {}
    for count in elements:
        for name, (encode, decode) in _codecs(count, device).items():
            # The median of three blocks leaves out one that something else has disturbed.
            encode_s = float(np.median(block_means_s(encode, window_s, device, blocks=3)))
            decode_s = float(np.median(block_means_s(decode, window_s, device, blocks=3)))
            num_encoded = count // NUMBERS_PER_PAIR if name.startswith("sparse") else count
            seconds.setdefault(name, []).append((num_encoded, encode_s, decode_s))
    return seconds


def _codecs(count: int, device: torch.device) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return for each wire format the functions that encode and decode a tensor of ``count`` numbers."""
    x = torch.randn(count, device=device)
    functions: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, wire in WIRE_FORMATS.items():
        if wire.exact_dtype:
            continue  # this format sends the tensor as it is
        functions[name] = partial(wire.encode, x), partial(wire.decode, wire.encode(x), x.dtype)
    signs = PackedSigns()
    votes = signs.encode(x > 0)
    functions["signs"] = (lambda: signs.encode(x > 0)), partial(signs.decode, votes, count, x.dtype)
    for bits in (4, 8, 5):  # two numbers in a byte, one number in a byte, six numbers in a word
        packed = PackedIntegers(bits)
        values = (x.abs() * 3).clamp(0, 2**bits - 1).to(torch.uint8)  # from 0 to about 12
        decode = partial(packed.decode, packed.encode(values), count, x.dtype)
        functions[f"integers-{bits}"] = partial(packed.encode, values), decode
    entries = x[: count // NUMBERS_PER_PAIR]
    index = torch.arange(len(entries), device=device) % CHUNK
    wide_pairs, narrow_pairs = SparsePairs(64, "fp32"), SparsePairs(0, "bf16")  # 0: no more index bits than needed
    for name, pairs in (("sparse-fp32", wide_pairs), ("sparse-bf16", narrow_pairs)):
        encode = partial(pairs.encode, index, entries, CHUNK)
        functions[name] = encode, partial(pairs.decode, encode(), len(entries), CHUNK, x.dtype)
    return functions


PRELOAD = ("syncline.measure.calibration.calibrate",)
"""Modules to load before forking, because every process needs them."""


def calibrate(
    plan: Calibration,
    workers: Sequence[int],
    out: Path,
    options: Launch | None = None,
    *,
    command: str = "",
    exact: bool = False,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Any]:
    """Measure this machine with each number of local processes in turn, and write the cluster file.

    Args:
        workers: numbers of processes, each at least 2.
        options: device, backend, timeout; the defaults of `Launch` if none.
        on_progress: called with the number of measurements done, of ``len(workers) * len(plan.measurements)``.

    Returns:
        ``file``, its contents, ``rows`` (the collectives), ``residuals`` (errors of the fit by collective and number of
        processes), ``constants``. After a failure, ``failed`` alone: a line that names the process.

    Raises:
        SynclineError: a mistake found before the measurements, or measurements that determine nothing.
    """
    options = options or Launch()
    check_process_counts(workers)
    devices = options.devices(max(workers))
    start_s, measured = time.perf_counter(), []
    with ClusterFile(out, exact) as file:
        for index, processes in enumerate(sorted(workers)):
            store, num_done = host_store(options.port), index * len(plan.measurements)
            with temporary_folder() as folder:
                progress = Progress.shared(folder / "progress", processes)
                failure = run_watched(
                    calibration_process, processes, args=(plan, processes, options, store.port, folder),
                    progress=progress, folder=folder, timeout_s=options.timeout_s, preload=PRELOAD,
                    on_poll=lambda polled: on_progress(num_done + polled.steps_done()),  # noqa: B023
                )  # fmt: skip
                if failure is not None and failure.mistake:
                    raise SynclineError(str(failure))
                if failure is not None:
                    return {"failed": failure_line(failure, plan)}
                measured.append(json.loads((folder / "measured.json").read_text()))
        facts = {
            "command": command, "seconds": round(time.perf_counter() - start_s, 1), "machines": 1,
            "backend": devices.backend, "device": devices.kind,
        }  # fmt: skip
        return file.write(cluster_of(plan, measured, facts))


def calibrate_under_torchrun(
    plan: Calibration, out: Path, options: Launch, *, command: str = "", exact: bool = False
) -> dict[str, Any]:
    """Measure the machines of the processes that torchrun started; rank 0 writes the cluster file.

    Returns:
        On rank 0 the same as `calibrate`, else an empty dict. A rank that fails, or whose peer died, gets ``failed``.

    Raises:
        SynclineError: a mistake found before the measurements; the same on every rank.
    """
    store, place = store_of_environment(options.meeting_s)
    check_process_counts([place.processes])
    file, mistake = None, None
    try:
        file = ClusterFile(out, exact) if place.rank == 0 else None
    except SynclineError as error:  # `agree_on` tells the other ranks, which would wait for this one
        mistake = str(error)
    with file or nullcontext():
        machines = agree_on(plan.identity(), options, store, place, mistake)
        devices = options.devices(place.local_processes)
        progress = Progress.private(place.processes, place.rank)
        start_s = time.perf_counter()
        try:
            measurement = measure(plan, options, store, place, machines, progress)
        except RuntimeError as error:
            line = line_of_error(error)
            is_lost_peer = any(words in line for words in ("Connection closed", "Connection reset", "Broken pipe"))
            reason = "lost another process" if is_lost_peer else f"failed ({line})"
            return {"failed": failure_line(Failure(place.rank, progress.step_of(place.rank), reason), plan)}
        if file is None:
            return {}
        facts = {
            "command": command, "seconds": round(time.perf_counter() - start_s, 1),
            "machines": len(set(machines.values())), "backend": devices.backend, "device": devices.kind,
        }  # fmt: skip
        return file.write(cluster_of(plan, [measurement], facts))


def failure_line(failure: Failure, plan: Calibration) -> str:
    """Return an error line that names the rank that failed and what the rank was measuring."""
    if failure.step is None:  # no measurement had begun
        return str(failure).replace("the first step", "the first measurement")
    return f"rank {failure.rank} {failure.reason} during {plan.measurements[failure.step]}"


def measure(
    plan: Calibration, options: Launch, store: Store, place: Place, machines: dict[int, str], progress: Progress
) -> dict[str, Any]:
    """Join the other ranks and measure; every rank returns an equal dict.

    Returns:
        ``workers``, ``steps`` (for each rank, the mean step time of each block), ``flops_per_step``,
        ``product_flops_per_s``, ``copy_bytes_per_s``, ``wires`` (for each rank, see `wire_seconds`), ``collectives``,
        ``spread`` (the relative spread of the step times).
    """
    torch.set_num_threads(plan.threads)
    devices = options.devices(place.local_processes)
    device = options.use_device(place.local_rank, place.local_processes)
    with group(store, place, devices.backend, options.group_timeout_s), torch.random.fork_rng(devices=[]):
        # Ranks agree on start times by tensors on the CPU, which NCCL does not send.
        cpu_group = None if devices.backend == "gloo" else dist.new_group(backend="gloo")
        gate = Gate(clock_offset_ns(place, machines), cpu_group)
        task = plan.problem.build(Rows((plan.seed,), (place.rank,), place.processes), device=device)

        window_s = plan.window_s
        # `FIRST_MEASUREMENTS`. There are many wire formats, so each gets a small part of the window.
        measurements: dict[str, Callable[[], Any]] = {
            "steps": lambda: step_seconds(task, window_s, device).tolist(),
            "product": lambda: product_flops_per_s(window_s, device),
            "copy": lambda: copy_bytes_per_s(window_s / 2, device),
            "wires": lambda: wire_seconds(window_s / 20, device),
        }
        results = {}
        for number, (name, run) in enumerate(measurements.items()):
            progress.record_step(number, done=number)
            gate.wait_for_start()  # all ranks measure at the same time
            results[name] = run()
        gathered = gate.gather(results)
        by_rank = {name: [results_of_rank[name] for results_of_rank in gathered] for name in measurements}

        def record_point(number: int) -> None:
            progress.record_step(len(measurements) + number, done=len(measurements) + number)

        rows = time_collectives(plan.timing, gate, device, on_point=record_point)
        progress.record_step(len(plan.measurements) - 1, done=len(plan.measurements))
        gate.wait_for_all()  # no rank leaves while others still communicate
    return {
        "workers": place.processes,
        "steps": by_rank["steps"],
        "flops_per_step": task.flops_per_step,
        "product_flops_per_s": float(np.median(by_rank["product"])),
        "copy_bytes_per_s": float(np.median(by_rank["copy"])),
        "wires": by_rank["wires"],
        "collectives": rows,
        "spread": spread([seconds for steps_s in by_rank["steps"] for seconds in steps_s]),
    }


def calibration_process(rank: int, plan: Calibration, processes: int, options: Launch, port: int, folder: Path) -> None:
    """Run one process of ``syncline calibrate``; rank 0 writes the measurements to the folder."""
    store, place = join_local_processes(rank, processes, port, options)
    machines = agree_on(plan.identity(), options, store, place)
    measurement = measure(
        plan, options, store, place, machines, progress=Progress.shared(folder / "progress", processes, rank)
    )
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(measurement))
