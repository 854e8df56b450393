"""A calibrated cluster as the network and the hardware of a spec: what its clock, projections and tables make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncline.costmodel import GLOO, MODELS, Link, compute_s, gloo_s
from syncline.errors import SpecError
from syncline.planner.collectives import CostQuestion, compute_costs
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import project, project_all
from syncline.planner.projection.projections import Options, variants
from syncline.planner.projection.thresholds import speedups
from syncline.runs.training.train_and_time import clock_with_faults, time_method, train_method
from syncline.sim import Call
from syncline.specs import ProjectSpec, RunSpec, hardware, load_spec, network

CLUSTER = """
name: lab
network:
  latency: 1 ms
  bandwidth: 1 Gbit/s
  gloo: {message_overhead: 0.1 ms, call_overhead: {2: 0.2 ms, 4: 0.5 ms}, byte_overhead: {all_reduce: 0.05 ns}}
hardware: {peak_flops: 4.0e+10, mfu: 0.3, memory_bytes_per_s: 9.0e+9}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "lab.yaml"
    file.write_text(CLUSTER)
    return file


def run_spec(cluster: Path, *overrides: str) -> RunSpec:
    given = ["workers=4", "steps=6", "seeds=[0]", "method=local-sgdm", "method.period=2", "compute={seconds: 10 ms}",
             "algorithm=null"]  # fmt: skip
    return load_spec("rosenbrock-mt-dao", [*given, f"network={cluster}", *overrides], RunSpec)


def timed(spec: RunSpec) -> tuple[float, float]:
    """Seconds of a step, and bytes of a call."""
    one = train_method(spec, spec.method)
    clock = time_method(spec, one, spec.network)
    assert clock is not None
    return clock.step_time_s, one.calls()[0].payload_bytes


def sum_s(cluster: Path, workers: int, nbytes: float) -> float:
    return float(gloo_s("all_reduce", workers, nbytes, network(cluster)))  # type: ignore[arg-type]


def test_a_training_pays_what_gloo_takes(cluster: Path) -> None:
    step_s, nbytes = timed(run_spec(cluster))
    assert step_s == pytest.approx(0.01 + sum_s(cluster, 4, nbytes) / 2)
    textbook_s, nbytes = timed(run_spec(cluster, "algorithm=ring"))
    assert textbook_s == pytest.approx(0.01 + 6 * (1e-3 + nbytes / 4 / 125e6) / 2)


@pytest.mark.parametrize(
    "fault",
    [
        "faults.slow_links=[{worker: 1, bandwidth_divisor: 3}]",
        "faults.absences=[{worker: 1, first_step: 2, end_step: 4}]",
        "faults.latency_jitter={mean_delay: 2 ms}",
    ],
)
def test_faults_take_the_network_apart_and_keep_what_it_knows(fault: str, cluster: Path) -> None:
    spec = run_spec(cluster, fault)
    calls = [Call(step, "all_reduce", 4096.0) for step in range(6)]
    known = spec.network
    assert isinstance(known, Link)
    seconds = np.full((6, 4), 0.01)
    told = clock_with_faults(spec, calls, seconds, known, algorithm="gloo")
    assert clock_with_faults(spec, calls, seconds, known).wall_s == told.wall_s
    assert told.wall_s > clock_with_faults(spec, calls, seconds, replace(known, gloo=None), algorithm="gloo").wall_s


def test_a_projection_is_of_the_cluster(cluster: Path) -> None:
    given = ["methods=[ddp-adam, local-adam]", "workers=4", f"networks=[{cluster}]", f"compute={{hardware: {cluster}}}",
             "overlap=none"]  # fmt: skip
    spec = load_spec("project-gpt-160m", given, ProjectSpec)
    row = project(spec)[0]
    shape = MODELS["gpt-160m"]
    computing_s = float(compute_s(shape.flops_per_token * spec.worker_tokens, hardware(cluster)))
    assert (row["network"], row["hardware"], row["algorithm"]) == ("lab", "lab", "gloo-ring")
    assert row["compute_s"] == pytest.approx(computing_s)
    assert row["communication_s"] == pytest.approx(sum_s(cluster, 4, 4.0 * shape.parameters))
    assert row["update_s"] > 0  # by the memory's bandwidth
    over = speedups(ProjectionPlan([spec]), 1, spec.networks[0], np.array([1e6, 125e6]))  # type: ignore[arg-type]
    assert over[1] == pytest.approx(project(spec)[1]["speedup"])
    assert over[0] > over[1]


def test_hardware_from_the_command_line(cluster: Path) -> None:
    spec = load_spec("project-gpt-160m", ["methods=[ddp-adam]", "networks=[wan]"], ProjectSpec)
    rows = project_all(variants(spec, Options(hardware=[f"h100,{cluster}"])))
    assert [row["hardware"] for row in rows] == ["h100", "lab"]
    at_utilisation = load_spec(
        "project-gpt-160m", ["methods=[ddp-adam]", "networks=[wan]", "compute.mfu=0.4"], ProjectSpec
    )
    (h100,) = project_all(variants(at_utilisation, Options(hardware=["h100"])))
    assert rows[1]["compute_s"] / h100["compute_s"] == pytest.approx(0.4 * 989e12 / (0.3 * 4e10))
    assert rows[0]["compute_s"] > h100["compute_s"]  # kernels, by default
    with pytest.raises(SpecError, match=r"^--hardware: got 'none\.yaml'; expected a file that can be read"):
        variants(spec, Options(hardware=["none.yaml"]))


def test_collectives_show_gloos_where_its_costs_are_known(cluster: Path) -> None:
    rows = compute_costs(CostQuestion.from_options(workers=4, nbytes="100kB", networks=[str(cluster), "1ms,1Gbit/s"]))[
        "rows"
    ]
    known = {row["collective"]: row for row in rows if row["network"] == "lab" and row["algorithm"].startswith("gloo")}
    assert {kind: row["algorithm"] for kind, row in known.items()} == GLOO
    for row in known.values():
        assert row["closed_form_s"] == gloo_s(row["collective"], 4, 1e5, network(cluster))  # type: ignore[arg-type]
        assert row["events_s"] == pytest.approx(row["closed_form_s"])
    assert not any(row["algorithm"].startswith("gloo") for row in rows if row["network"] != "lab")
