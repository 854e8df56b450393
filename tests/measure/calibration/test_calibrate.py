"""``syncline calibrate``: a cluster file that specs take, its sections out of known times, and what is refused."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.costmodel import GlooCosts, Link
from syncline.costmodel.link_fit import predicted_s
from syncline.errors import SpecError, SynclineError
from syncline.measure.calibration.calibrate import calibrate, failure_line
from syncline.measure.calibration.cluster_file import ClusterFile, cluster_of, quantity
from syncline.measure.calibration.collective_times import Timing
from syncline.measure.calibration.plan import Calibration, calibrate_warnings, plan_of_options, process_counts
from syncline.measure.calibration.tables import calibrate_tables
from syncline.measure.processes.watchdog import Failure
from syncline.problems import PROBLEMS
from syncline.specs import hardware, network
from syncline.units import parse_bandwidth, parse_seconds
from tests.torchrun import TORCHRUN, run

DIGITS = PROBLEMS["digits"](batch_size=4, hidden=8)
TINY = Calibration(
    DIGITS,
    timing=Timing(sizes=(4, 1 << 12, 1 << 20), budget_s=0.01, min_repetitions=3, max_repetitions=6),
    window_s=0.01,
)
OPTIONS = ("--sizes", "4B,4KiB,1MiB", "--budget", "5ms", "--window", "10ms", "--network", "100us,10Gbit/s")
SECTIONS = ["name", "measured", "network", "hardware", "compute", "wires", "collectives"]


def check_cluster(file: Path, workers: int) -> dict[str, Any]:
    """A whole cluster file, which can be read as network and as hardware."""
    fields = yaml.safe_load(file.read_text())
    assert list(fields) == SECTIONS and fields["name"] == file.stem
    link = network(str(file))
    assert isinstance(link, Link) and link.gloo is not None and link.name == file.stem
    assert hardware(str(file)).peak_flops == fields["hardware"]["peak_flops"]
    assert {row["workers"] for row in fields["collectives"]} == {workers}
    for row in fields["collectives"]:
        foretold_s = float(predicted_s(row["collective"], workers, row["nbytes"], link, link.gloo))
        assert foretold_s == pytest.approx(row["predicted_s"], rel=1e-3)
    return fields


def test_local_processes_and_their_file(tmp_path: Path) -> None:
    seen: list[int] = []
    out = tmp_path / "deep" / "mine.yaml"
    # A link that is given, as what times of a busy machine tell of a link may be nothing.
    told = calibrate(
        replace(TINY, link=Link(1e-4, 1e9)), [2], out, command="syncline calibrate", exact=True, on_progress=seen.append
    )
    fields = check_cluster(out, 2)
    assert fields["measured"]["command"] == "syncline calibrate" and not fields["measured"]["link_fitted"]
    assert len(fields["collectives"]) == len(TINY.timing.points) == len(told["rows"])
    assert [path.name for path in out.parent.iterdir()] == ["mine.yaml"]
    assert told["file"] == str(out) and max(seen) <= len(TINY.measurements)
    assert len(calibrate_tables(told)) == 4


@dataclass(frozen=True)
class Deadly:
    """A problem that kills the process of worker 1 while steps are timed."""

    name: ClassVar[str] = "deadly"
    mistake: bool = False

    def build(self, rows: Any, *, dtype: torch.dtype = torch.float32, device: Any = "cpu") -> Any:
        if self.mistake:
            raise SpecError("problem.size", 3, "an even one")
        task = DIGITS.build(rows, dtype=dtype, device=device)
        if 1 in rows.workers:
            task.step_gradients = lambda step: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        return task


def test_a_process_that_dies_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    told = calibrate(replace(TINY, problem=Deadly()), [2], tmp_path / "cluster.yaml")
    assert told == {"failed": "rank 1 died (killed by SIGKILL) during training steps"}
    assert not list(tmp_path.iterdir())


def test_a_mistake_that_processes_find_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(SynclineError, match=r"problem\.size: got 3; expected an even one"):
        calibrate(replace(TINY, problem=Deadly(mistake=True)), [2], tmp_path / "cluster.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_of_torchrun(tmp_path: Path) -> None:
    done = run(*TORCHRUN, "--nproc-per-node", "2", "-m", "syncline.torchrun", "--calibrate", *OPTIONS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    fields = check_cluster(tmp_path / "cluster.yaml", 2)
    assert fields["measured"]["machines"] == 1 and "--calibrate" in fields["measured"]["command"]
    again = ("-m", "syncline.torchrun", "--calibrate", "--out", "cluster.yaml")
    taken = run(*TORCHRUN, "--nproc-per-node", "2", *again, cwd=tmp_path)
    assert taken.returncode != 0 and "error: --out: got 'cluster.yaml'; expected a file that does not" in taken.stderr


LINK, COSTS = Link(1e-3, 125e6), GlooCosts(call_s=((2, 2e-4), (4, 5e-4)), byte_s=(("all_gather", 4e-10),))
FACTS = {"command": "", "seconds": 1.0, "machines": 1, "backend": "gloo", "device": "cpu"}


def measured_with(workers: int, flops: float | None = 6e6) -> dict[str, Any]:
    """As if measured: steps of 2 ms, or 3 ms on the last rank; wire formats of 10 us and 1 ns, half of it to decode."""
    rows = [
        {
            "collective": kind, "workers": workers, "nbytes": n, "repetitions": 9, "min_s": 0.0, "spread": 0.0,
            "skew_s": 0.0, "median_s": float(predicted_s(kind, workers, n, LINK, COSTS)),
        }
        for kind in Timing().collectives
        for n in (4, 1 << 14, 1 << 20, 1 << 24)
    ]  # fmt: skip
    return {
        "workers": workers,
        "steps": [[2e-3] * 3] * (workers - 1) + [[3e-3] * 3],
        "flops_per_step": flops,
        "product_flops_per_s": 4e10,
        "copy_bytes_per_s": 9e9,
        "wires": [{"bf16": [(n, 1e-5 + 1e-9 * n, 5e-6 + 5e-10 * n) for n in (1 << 10, 1 << 15, 1 << 20)]}] * workers,
        "collectives": rows,
        "spread": 0.1,
    }


def test_sections_out_of_known_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    result = cluster_of(TINY, [measured_with(2), measured_with(4)], FACTS)
    with ClusterFile(tmp_path / "cluster.yaml") as file:
        file.write(result)
    link = network(tmp_path / "cluster.yaml")
    assert isinstance(link, Link) and link.gloo is not None
    assert (link.latency_s, link.bandwidth_bytes_per_s) == pytest.approx((1e-3, 125e6), rel=1e-3)
    assert dict(link.gloo.call_s) == pytest.approx({2: 2e-4, 4: 5e-4}, rel=0.01)
    assert dict(link.gloo.byte_s) == pytest.approx({"all_gather": 4e-10}, rel=0.05)
    assert max(row["worst"] for row in result["residuals"]) < 1e-3
    assert result["residuals"][-1] | {"collective": "all", "workers": None, "points": 48} == result["residuals"][-1]
    # Four processes share three cores, so the hardware is that of two.
    assert result["measured"]["hardware_of_workers"] == 2
    bounds = result["hardware"].pop("bounds")
    assert bounds["width"] == [0, 0] and bounds["low"] < 1 < bounds["high"]  # of no transformer
    assert result["hardware"] == {
        "peak_flops": 4e10, "mfu": pytest.approx(6e6 / 2.5e-3 / 4e10), "precision": "fp32", "memory_bytes_per_s": 9e9
    }  # fmt: skip
    two, four = result["compute"]
    assert (two["step_s"], four["step_s"], four["slowest_s"]) == pytest.approx((2.5e-3, 2e-3, 3e-3))
    wire = result["wires"][0]
    fields = ("encode_fixed_s", "encode_element_s", "decode_fixed_s", "decode_element_s", "bytes_per_s")
    assert [wire[name] for name in fields] == pytest.approx([1e-5, 1e-9, 5e-6, 5e-10, 4 / 1.5e-9], rel=1e-3)


def test_a_given_link_is_held() -> None:
    result = cluster_of(replace(TINY, link=replace(LINK, efficiency=0.99)), [measured_with(2)], FACTS)
    assert result["network"]["latency"] == "1 ms" and result["network"]["bandwidth"] == "1 Gbit/s"
    assert result["network"]["efficiency"] == 0.99 and not result["measured"]["link_fitted"]


def test_without_gloo_latency_and_bandwidth_alone() -> None:
    one = measured_with(2)
    rows = [
        row | {"median_s": float(predicted_s(row["collective"], 2, row["nbytes"], LINK, library="textbook"))}
        for row in one["collectives"]
    ]
    result = cluster_of(TINY, [one | {"collectives": rows}], FACTS | {"backend": "nccl"})
    bounds = result["network"].pop("bounds")
    assert bounds["low"] == pytest.approx(1) == bounds["high"] and bounds["nbytes"][0] == 4
    assert result["network"] == {"latency": "1 ms", "bandwidth": "1 Gbit/s"}


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_times_that_show_no_bandwidth_are_refused(noise: float) -> None:
    """Of 1 KiB at 1 Gbit/s the bytes take 8 us, 0.4% of two latencies: nothing, where times differ by 30%."""
    draw = np.random.default_rng(0)
    one = measured_with(2)
    small = (4, 1 << 10)
    rows = [
        row | {"nbytes": n, "median_s": float(predicted_s(row["collective"], 2, n, LINK) * draw.lognormal(0, noise))}
        for row in one["collectives"][::4]
        for n in small * 3
    ]
    plan = replace(TINY, timing=replace(TINY.timing, sizes=small))
    if not noise:
        assert cluster_of(plan, [one | {"collectives": rows}], FACTS)["network"]["bandwidth"] == "1 Gbit/s"
        return
    with pytest.raises(
        SpecError, match=r"--sizes: got '4 B, 1\.02 kB'; expected larger " r"ones as well, such as 16\.8 MB"
    ):
        cluster_of(plan, [one | {"collectives": rows}], FACTS)
    of_all = replace(TINY, timing=Timing())
    with pytest.raises(SpecError, match=r"--budget: got '150 ms'; expected a longer one"):
        cluster_of(of_all, [one | {"collectives": rows}], FACTS)
    given = cluster_of(replace(plan, link=LINK), [one | {"collectives": rows}], FACTS)
    assert given["network"]["bandwidth"] == "1 Gbit/s"


def test_a_landscape_says_no_flops() -> None:
    result = cluster_of(TINY, [measured_with(2, flops=None)], FACTS)
    assert result["hardware"] is None and "mfu" not in result["compute"][0]
    assert len(calibrate_tables(result)) == 4


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "cluster.yaml"
    out.write_text("mine")
    with pytest.raises(SpecError, match="a file that does not exist yet"):
        ClusterFile(out, exact=True)
    with ClusterFile(out) as file:
        told = file.write({"collectives": []})
    assert out.read_text() == "mine" and told["file"] == str(tmp_path / "cluster-2.yaml")
    with pytest.raises(ValueError, match="half"), ClusterFile(tmp_path / "new.yaml"):
        raise ValueError("half")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster-2.yaml", "cluster.yaml"]
    with pytest.raises(SpecError, match=r"ends in \.yaml"):
        ClusterFile(tmp_path / "cluster.json")
    with pytest.raises(SpecError, match="a place that can be written to"):
        ClusterFile(out / "below.yaml")


def test_quantities_come_back() -> None:
    for value in (3.1234e-11, 2.5e-7, 1.0234e-3, 0.99999, 0.999999e-3, 12.0):
        text = quantity(value, {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0})
        assert parse_seconds(text) == pytest.approx(value, rel=1e-4)
    assert quantity(0.0, {"ns": 1e-9}) == "0 ns" and quantity(9.999999e-4, {"us": 1e-6, "ms": 1e-3}) == "1 ms"
    assert parse_bandwidth(quantity(1.23456e9, {"Gbit/s": 125e6})) == pytest.approx(1.23456e9, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--workers", "1"), "--workers: got [1]"),
        (("--workers", "2,2"), "--workers: got [2, 2]"),
        (("--workers", "two"), "--workers: got 'two'"),
        (("--sizes", "0B"), "sizes: got [0]"),
        (("--sizes", "4KiB"), "--sizes: got '4KiB'; expected small and large ones"),
        (("--sizes", "many"), "--sizes: got 'many'"),
        (("--budget", "0"), "budget: got 0.0"),
        (("--window", "0s"), "window: got 0.0"),
        (("--network", "dgx"), "--network"),
        (("--network", "{per_node: 2, inside: nvlink4, between: wan}"), "one link that all workers have"),
        (("--set", "steps=3"), "--set"),
        (("pipeline-gpt-350m",), "kind"),
        (("--device", "tpu"), "device: got 'tpu'"),
        (("--out", "cluster.txt"), "--out: got 'cluster.txt'"),
    ],
)
def test_what_is_refused_before_anything_is_measured(
    arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["calibrate", *arguments])
    assert isinstance(done.exception, SynclineError) and told in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_json_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cluster_of(TINY, [measured_with(2)], FACTS)

    def fake(plan: Calibration, workers: list[int], out: Path, *_: Any, **how: Any) -> dict[str, Any]:
        assert (workers, plan.problem, how["exact"]) == ([2], PROBLEMS["digits"](), True)
        with ClusterFile(out, how["exact"]) as file:
            return file.write(result)

    monkeypatch.setattr("syncline.measure.calibration.calibrate.calibrate", fake)
    monkeypatch.setattr(sys, "argv", ["syncline", "calibrate"])
    out = tmp_path / "mine.yaml"
    done = CliRunner().invoke(app, ["calibrate", "--workers", "2", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.exception
    told = yaml.safe_load(done.stdout)
    assert told["file"] == str(out) and len(told["rows"]) == 24 and told["network"]["latency"] == "1 ms"
    assert "results in" in done.stderr and out.exists()


def test_the_command_ends_with_one_line_where_a_process_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "rank 1 did nothing for 120 s, and the others waited for it, during wire formats"
    monkeypatch.setattr("syncline.measure.calibration.calibrate.calibrate", lambda *_, **__: {"failed": line})
    done = CliRunner().invoke(app, ["calibrate"])
    assert done.exit_code == 1 and done.stderr.endswith(f"error: {line}\n")


def test_plans() -> None:
    plan = plan_of_options(
        "compare-text", ["problem.context=16"], known_network="1ms,1Gbit/s", sizes="8, 1KiB", budget="20 ms"
    )
    assert plan.problem.name == "text-gpt" and plan.problem.context == 16
    assert plan.timing == Timing(sizes=(8, 1024), budget_s=0.02) and plan.link == network("1ms,1Gbit/s")
    assert plan_of_options().problem == PROBLEMS["digits"]() and process_counts("4,2") == [4, 2]


def test_warnings_and_failures() -> None:
    assert calibrate_warnings([2, 4], cores=4, load=0.1) == []
    shared, busy = calibrate_warnings([4, 2], cores=2, load=1.7)
    assert shared.startswith("4 processes share 2 cores") and "busy (load 1.7 on 2 cores)" in busy
    early = Failure(1, None, "did not begin within 180 s")
    assert failure_line(early, TINY) == "rank 1 did not begin within 180 s before the first measurement"
    assert failure_line(Failure(0, 4, "died"), TINY) == "rank 0 died during all_reduce of 4 B"
    assert np.unique(TINY.measurements).size == 4 + len(TINY.timing.points)
