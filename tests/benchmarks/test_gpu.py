"""The benchmark of a GPU, on a CPU at sizes that take no time: every part runs; what fails is told, and lost alone."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import (
    collectives,
    compute,
    facts,
    kernels,
    optimizers,
    parts,
    report,
    shapes,
    stopwatch,
    updates,
    workers,
)
from benchmarks.gpu.__main__ import PARTS, SKIPPED, main
from benchmarks.gpu.parts import Part, run
from benchmarks.gpu.setting import TINY, Setting, preset_of
from benchmarks.gpu.workers import GPT_16M, SMALLEST
from syncline.costmodel import HARDWARE
from syncline.costmodel.compute.models import MODELS
from syncline.measure.recording.operations import OperationCounter
from syncline.optim.matrices import newton_schulz, orthonormal_columns
from syncline.problems.gpt import training_flops_per_token
from syncline.units import parse_seconds

CPU = Setting("cpu", tiny=True)

LONG_S = 3600.0
PASSES = ("forward", "backward")


class Shapes(Setting):
    """All sizes in full, without memory and without arithmetic."""

    on = torch.device("meta")


def once(once_s, *args, **options):
    return [once_s()]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu") / "folder" / "tiny.json"
    with pytest.MonkeyPatch.context() as patched:  # a busy machine ends no part before its last row
        patched.setattr(command, "PARTS", {name: replace(part, at_most_s=LONG_S) for name, part in PARTS.items()})
        assert main(["--device", "cpu", "--tiny", "--budget", "2h", "--out", str(out)]) == 0
    assert [path.name for path in out.parent.iterdir()] == ["tiny.json"]
    return json.loads(out.read_text())


def rows_of(result, part):
    return result["parts"][part]["rows"]


def test_every_part_runs_on_a_cpu(result):
    assert list(result["parts"]) == list(PARTS) and next(iter(PARTS)) == "facts"
    for name, part in result["parts"].items():
        assert part["rows"], name
        assert not {"failed", "skipped", "stopped"} & part.keys(), (name, part)
        assert not [row for row in part["rows"] if "failed" in row], name
    assert sum(part["seconds"] for part in result["parts"].values()) <= result["seconds"]
    (told,) = rows_of(result, "facts")
    assert {"device", "date", "torch", "syncline", "python"} <= told.keys() and result["tiny"]
    assert [row["method"] for row in rows_of(result, "optimizers")] == list(optimizers.METHODS)
    assert {row["collective"] for row in rows_of(result, "alone")} == {"all_reduce", "all_gather"}
    assert {row["ranks"] for row in rows_of(result, "shared")} == {2}
    assert {"qr", "eigh", "top-k of blocks", "wire format"} <= {row["kernel"] for row in rows_of(result, "kernels")}
    assert {row["numbers"] for row in rows_of(result, "readback")} == {0, 1, 72}


def test_rates_are_work_over_seconds(result):
    core = HARDWARE["cpu-core"]
    for row in rows_of(result, "compute"):
        flops = TINY.flops_per_token * row["micro_batch"] * TINY.sequence
        assert row["flops"] == flops
        pairs = sum(range(1, TINY.sequence + 1))  # of a token and one that it attends to, among a sequence's
        attention = 12 * TINY.layers * TINY.query_width * pairs
        weights = 6 * TINY.matmul_parameters * TINY.sequence
        assert row["causal_flops"] == pytest.approx((weights + attention) * row["micro_batch"])
        assert row["mfu"] == pytest.approx(flops / row["median_s"] / core.peak_flops)
        assert row["predicted_s"] == pytest.approx(flops / (core.mfu * core.peak_flops))
        assert (1 + row["error"]) * row["median_s"] == pytest.approx(row["predicted_s"])
        assert 1 + row["error"] == pytest.approx(row["mfu"] / row["predicted_mfu"])
    for row in rows_of(result, "ceilings"):
        if row["what"] == "matmul":
            assert row["flops_per_s"] * row["median_s"] == pytest.approx(2 * row["size"] ** 3)
        else:
            counted = 2 if row["what"] == "device copy" else 1  # read and written
            assert row["bytes_per_s"] * row["median_s"] == pytest.approx(counted * row["nbytes"])


def test_rates_of_shapes_are_work_over_seconds(result):
    rows = rows_of(result, "shapes")
    assert {"launch, host alone", "qkv", "RMSNorm", "cross-entropy", "embedding", "AdamW, fused"} <= {
        row["operation"] for row in rows
    }
    for row in rows:
        for counted, rate in (("flops", "flops_per_s"), ("nbytes", "bytes_per_s")):
            assert (counted in row) == (rate in row)
            if counted in row:
                assert row[rate] * row["median_s"] == pytest.approx(row[counted])
        if row["operation"] in shapes.LAYERS:
            assert row["flops"] == 2 * math.prod(row["shape"])
    passes = {p: [r for r in rows if r["operation"].startswith("attention") and r["pass"] == p] for p in PASSES}
    for forward, backward in zip(*passes.values(), strict=True):
        assert backward["shape"] == forward["shape"] and backward["flops"] == 2.5 * forward["flops"]


def test_the_products_of_a_layer_are_those_of_its_gradients(monkeypatch):
    monkeypatch.setattr(stopwatch, "repeated", once)
    rows = list(shapes._products(Shapes("cpu")))
    assert not [row for row in rows if "failed" in row]
    for forward, of_input, of_weight in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        tokens, outputs, inputs = forward["shape"]
        assert of_input["shape"] == [tokens, inputs, outputs] and of_weight["shape"] == [outputs, inputs, tokens]
    llama = {tuple(row["shape"][1:]) for row in rows if row["operation"] == "gate and up" and row["pass"] == "forward"}
    assert llama == {(2 * 5504, 2048), (2 * 11008, 4096), (2 * 28672, 8192)}


def test_a_product_of_shapes_is_that_of_its_operands():
    for precision, tolerance in (("bf16", 0.02), ("tf32", 1e-5), ("fp8", 0.1)):
        torch.manual_seed(0)
        work = shapes._multiplies(32, 48, 64, precision, CPU)
        torch.manual_seed(0)
        dtype = torch.float32 if precision == "tf32" else torch.bfloat16
        a, b = torch.randn(32, 64, dtype=dtype), torch.randn(48, 64, dtype=dtype)
        exact = a.double() @ b.double().T
        assert torch.linalg.norm(work().double() - exact) <= tolerance * torch.linalg.norm(exact)


def test_tokens_of_workers_are_beside_those_of_one(result):
    rows, tokens = rows_of(result, "workers"), SMALLEST.batch_size * SMALLEST.context
    cases = [(method, *passes, w) for method in workers.METHODS for passes in workers.PASSES["cpu"] for w in (1, 4)]
    assert [(row["method"], row["execution"], row["autocast"], row["workers"]) for row in rows] == cases
    for of_method in (rows[:6], rows[6:]):
        alone = of_method[0]
        assert alone["of_one"] == 1
        for row in of_method:
            assert row["tokens_per_s"] * row["median_s"] == pytest.approx(row["workers"] * tokens)
            assert row["of_one"] == row["tokens_per_s"] / alone["tokens_per_s"]
            assert row["least_bytes"] >= 4 * 3 * row["parameters"]  # parameters, gradients, a state at least


def test_a_gpu_of_its_own_for_each_rank(result, monkeypatch):
    rows = rows_of(result, "nccl")
    assert {(row["backend"], row["ranks"], row["collective"]) for row in rows} == {
        ("gloo", 2, "all_reduce"),
        ("gloo", 2, "all_gather"),
    }
    for row in rows:
        assert row["bus_bytes_per_s"] * row["median_s"] == pytest.approx(row["nbytes"])  # of two ranks, either way
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    (only,) = collectives.nccl(Setting("cuda"))
    assert only["ranks"] == 1 and "one GPU" in only["failed"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 6)
    asked = []
    monkeypatch.setattr(collectives, "_among", lambda *given: asked.append(given) or iter(()))
    assert not list(collectives.nccl(Setting("cuda")))
    assert [(ranks, device, backend) for ranks, device, _, backend in asked] == [(n, None, "nccl") for n in (2, 4, 6)]


def test_all_parts_fit_into_their_time():
    whole_s = parse_seconds(command.parser().parse_args([]).budget, "--budget")
    assert whole_s == 20 * 60 and sum(part.at_most_s for part in PARTS.values()) + parts.GRACE_S <= whole_s


def test_the_gpt_of_many_workers_has_16_million_parameters():
    assert workers.parameter_count(GPT_16M.module()) == pytest.approx(16e6, rel=0.02)


def test_a_cycle_of_a_rotation_has_one_renewal(result):
    for row in rows_of(result, "optimizers"):
        assert row["repeats"] % row["cycle"] == 0 and "cut_short" not in row
        assert row["cycle"] == (10 if row["method"].startswith(("basis-rotation", "soap")) else 1)
        assert row["slowest_s"] >= row["mean_s"] > 0


def test_without_a_gpu_it_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert main([]) == SKIPPED == 77
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and "no GPU" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "computing"], "--parts: got 'computing'; expected one of 'alone'"),
        (["--budget", "8"], "--budget: got '8'"),
    ],
)
def test_options_that_cannot_be(words, said, capsys):
    assert main([*words, "--device", "cpu"]) == 2
    assert said in capsys.readouterr().err


def test_parts_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--device", "cpu", "--tiny", "--parts", "readback"]) == 0
    assert "readback" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []  # on the CPU nothing without --out
    options = command.parser().parse_args(["--parts", "compute,ceilings"])
    some = command.chosen(options.parts)
    assert [part.name for part in some] == ["facts", "ceilings", "compute"]
    name = "NVIDIA H100 80GB HBM3"
    assert command.path_of(options, name, some).as_posix() == "results/gpu/nvidia-h100-80gb-hbm3-ceilings-compute.json"
    every = command.parser().parse_args([])
    assert command.path_of(every, name, list(PARTS.values())).as_posix() == "results/gpu/nvidia-h100-80gb-hbm3.json"


def raises(setting):
    yield {"number": 1}
    raise RuntimeError("no such kernel\nand a long story")


def dies(setting):
    yield {"number": 1}
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(setting):
    yield {"number": 1}
    time.sleep(60)


def hangs_with_a_rank(setting):
    rank = subprocess.Popen(["sleep", "60"])
    yield {"rank": rank.pid}
    rank.wait()


def goes_on(setting):
    for number in range(1000):
        yield {"number": number}
        time.sleep(0.01)


def test_a_part_that_raises_keeps_its_rows():
    told = run(Part("raises", raises, 60.0), CPU, 100.0)
    assert told["rows"] == [{"number": 1}] and told["failed"] == "RuntimeError: no such kernel"


def test_a_part_that_dies_or_hangs_keeps_its_rows(monkeypatch):
    told = run(Part("dies", dies, 60.0), CPU, 100.0)
    assert told["rows"] == [{"number": 1}] and told["failed"] == "its process ended with exit code -9"
    monkeypatch.setattr(parts, "GRACE_S", 0.5)
    monkeypatch.setattr(parts, "LEAST_S", 0.0)
    told = run(Part("hangs", hangs, 2.0), CPU, 100.0)
    assert told["rows"] == [{"number": 1}] and told["failed"].startswith("ended, as it took")
    assert told["seconds"] < 30


def test_a_part_that_hangs_ends_what_it_has_started(monkeypatch):
    monkeypatch.setattr(parts, "GRACE_S", 0.5)
    monkeypatch.setattr(parts, "LEAST_S", 0.0)
    (row,) = run(Part("hangs", hangs_with_a_rank, 2.0), CPU, 100.0)["rows"]
    deadline = time.monotonic() + 30
    while is_running(row["rank"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(row["rank"])


def is_running(pid):
    """Whether there is such a process that has not ended; whoever started it may never ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_part_begins_no_row_after_its_time(monkeypatch):
    monkeypatch.setattr(parts, "LEAST_S", 0.0)
    told = run(Part("goes on", goes_on, 0.05), CPU, 100.0)
    assert 1 <= len(told["rows"]) < 1000 and told["stopped"] == "after 0 s" and "failed" not in told
    assert run(Part("goes on", goes_on, 60.0), CPU, 3.0) == {"skipped": "3 s were left", "rows": []}


def test_a_part_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    failing = {**PARTS, "ceilings": replace(PARTS["ceilings"], rows=raises)}
    monkeypatch.setattr(command, "PARTS", failing)
    monkeypatch.setitem(report.COLUMNS, "ceilings", {"number": report.value("number")})
    out = tmp_path / "out.json"
    assert main(["--device", "cpu", "--tiny", "--parts", "ceilings,readback", "--out", str(out)]) == 1
    told = json.loads(out.read_text())["parts"]
    assert told["ceilings"]["failed"] == "RuntimeError: no such kernel" and len(told["readback"]["rows"]) == 6
    assert "ceilings: failed: RuntimeError: no such kernel" in capsys.readouterr().out
    assert main(["--device", "cpu", "--tiny", "--parts", "readback", "--budget", "10 s", "--out", str(out)]) == 0
    assert "skipped" in json.loads(out.read_text())["parts"]["readback"]  # less was left than a hung row may take


def test_the_largest_batch_that_fits(monkeypatch):
    measured = compute._measured

    def memory_for_one(module, shape, micro_batch, setting):
        if micro_batch > 1:
            raise torch.cuda.OutOfMemoryError
        return measured(module, shape, micro_batch, setting)

    monkeypatch.setattr(compute, "_measured", memory_for_one)
    first, second = compute.compute(CPU)
    assert "median_s" in first and second["out_of_memory"] and second["micro_batch"] == 2
    nothing = {"parts": {}}
    assert report.note(second, nothing) == "out of memory"
    cells = [cell(second, nothing) for cell in report.COLUMNS["compute"].values()]
    assert cells[:3] == ["tiny", "2", "bf16"] and set(cells[3:-1]) == {""}


def test_a_method_that_fails_leaves_the_others(monkeypatch):
    monkeypatch.setattr(optimizers, "METHODS", ("no-such-method", "ddp-adam"))
    first, second = optimizers.optimizers(CPU)
    assert "failed" in first and "\n" not in first["failed"] and "median_s" in second


@pytest.mark.parametrize("name", ["gpt-160m", "gpt-350m"])
def test_the_network_has_the_flops_of_the_shape(name):
    shape = MODELS[name]
    module = compute.network(shape, torch.device("meta"))
    assert training_flops_per_token(module, shape.sequence) == shape.flops_per_token
    extra = (shape.sequence + 2 * shape.layers + 1) * shape.width  # positions and norms, which the shape does not have
    assert sum(p.numel() for p in module.parameters()) == shape.parameters + extra


def test_compute_and_kernels_at_full_size(monkeypatch):
    monkeypatch.setattr(stopwatch, "repeated", once)
    rows = list(compute.compute(Shapes("cpu")))
    assert [(row["model"], row["micro_batch"]) for row in rows] == [
        (name, batch) for name in ("gpt-160m", "gpt-350m") for batch in compute.MICRO_BATCHES
    ]
    timed = [row for row in kernels.kernels(Shapes("cpu")) if row["kernel"] != "wire format"]
    decomposed = {row["shape"][-1] for row in timed if row["kernel"] == "eigh"}
    assert decomposed == {768, 1024, 3072, 4096}
    factors = {tuple(row["shape"][1:]) for row in timed if row["kernel"] == "qr"}
    assert factors == {(768, 192), (3072, 192), (1024, 256), (4096, 256)}  # a rank of a quarter of the smaller side


@pytest.mark.slow
def test_optimizers_at_full_size(monkeypatch):
    monkeypatch.setattr(optimizers, "repeated", once)
    rows = list(optimizers.optimizers(Shapes("cpu")))
    assert len(rows) == 2 * len(optimizers.METHODS)
    # A trigger looks at values, and there are none.
    assert {row["method"] for row in rows if "failed" in row} == {"curvadion"}


def test_bytes_of_updates_are_those_of_their_operations():
    """The operations on elements move as many bytes as a counter counts, apart from the few largest of each block."""
    for name, (width, work) in updates._on_elements(updates.BLOCK, torch.device("cpu")).items():
        counted = []
        with OperationCounter(counted.append, lambda: True):
            work()
        if name != "scatter_add_":  # counted as if it read and wrote its whole target
            nbytes = sum(operation.nbytes for operation in counted)
            assert width * updates.BLOCK == pytest.approx(nbytes, abs=1100), name


def test_both_ways_to_orthogonal_columns_agree():
    x = torch.randn(2, 40, 8)
    torch.testing.assert_close(updates.cholesky_columns(x), orthonormal_columns(x), atol=1e-4, rtol=1e-4)
    polar, other = newton_schulz(x), updates.polar_factor_in(x, torch.float32)
    torch.testing.assert_close(polar, other, atol=1e-4, rtol=1e-4)


def test_presets_are_of_the_same_board():
    found = {
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H100 PCIe": None,
        "NVIDIA H100 NVL": None,
        "NVIDIA H200": "h200",
        "NVIDIA H200 NVL": None,
        "NVIDIA B200": "b200",
        "NVIDIA GB200": "gb200",
        "NVIDIA B300 SXM6 AC": "b300",
        "NVIDIA GB300": "gb300",
        "NVIDIA GH200 480GB": "gh200",
        "NVIDIA H20": "h20",
        "NVIDIA H20-3e": None,
        "AMD Instinct MI300X": "mi300x",
        "AMD Instinct MI325X": "mi325x",
        "NVIDIA L40S": "l40s",
        "NVIDIA GeForce RTX 5090": "rtx-5090",
        "NVIDIA GeForce RTX 5090 D": None,
        "NVIDIA A100-SXM4-80GB": "a100",
        "NVIDIA A100-SXM4-40GB": "a100-40gb",
        "NVIDIA A100 80GB PCIe": None,
        "Tesla V100-SXM2-16GB": "v100",
        "Tesla V100-SXM2-32GB": "v100-32gb",
        "NVIDIA GeForce RTX 4090": "rtx-4090",
        "NVIDIA GeForce RTX 4090 D": None,
        "NVIDIA GeForce RTX 3090 Ti": None,
        "NVIDIA GeForce RTX 3090": "rtx-3090",
        "NVIDIA A10G": None,
    }
    assert {name: preset_of(name) for name in found} == found
    assert {preset for preset in found.values() if preset} == {
        name for name in HARDWARE if not name.startswith(("cpu", "tpu"))
    }


def test_a_gpu_is_timed_by_its_own_clock(monkeypatch):
    clock_ms = iter([10.0, 16.0])

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.ms = next(clock_ms)

        def elapsed_time(self, end):
            return end.ms - self.ms

    waits, works = [], []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    device = torch.device("cuda", 0)
    assert stopwatch.queued_s(lambda: works.append(0), device, calls=3) == pytest.approx(2e-3)
    assert len(works) == 3 and waits == [device, device]  # before the first event, and before the times are read


def test_summaries():
    told = stopwatch.summary([4.0, 1.0, 2.0, 3.0, 5.0])
    assert told == {"median_s": 3.0, "min_s": 1.0, "spread": (4 - 2) / 3, "repeats": 5}
    assert stopwatch.summary([2.0])["spread"] == 0
    seconds = iter(range(100))
    assert stopwatch.repeated(lambda: next(seconds), 3, 10.0) == [2, 3, 4]  # after a warm-up of two
    assert stopwatch.repeated(lambda: next(seconds), 3, 0.0) == [7]


def test_what_a_driver_tells(monkeypatch):
    told = facts.parsed("570.1, 1980 MHz, 2619 MHz, 1980 MHz, 2619 MHz, 700.00 W, 31, Enabled, Default, [N/A]\nnext")
    assert told["driver_version"] == "570.1" and told["clocks.sm"] == "1980 MHz" and "mig.mode.current" not in told
    assert facts.parsed("") == {}
    monkeypatch.setattr(facts.shutil, "which", lambda name: None)
    assert facts.told_by_driver("") == {}
    monkeypatch.setattr(facts.shutil, "which", lambda name: "/bin/false")
    assert facts.told_by_driver("1234") == {}


def test_columns_beside_other_rows():
    result = {
        "parts": {
            "ceilings": {"rows": [{"precision": "bf16", "flops_per_s": f} for f in (2e12, 8e12)]},
            "optimizers": {"rows": [{"model": "m", "method": "ddp-adam", "mean_s": 2.0}]},
        }
    }
    assert report.of_ceiling({"precision": "bf16", "flops_per_s": 2e12}, result) == "25.0%"
    assert report.of_ceiling({"precision": "fp16", "flops_per_s": 2e12}, result) == ""
    assert report.over_adam({"model": "m", "mean_s": 3.0}, result) == "1.50"
    assert report.over_adam({"model": "other", "mean_s": 3.0}, result) == ""
