"""Published trainings against the ordinary projection, and tables of one's own."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from syncline.errors import SynclineError
from syncline.measure.validation.cluster_files import predicted_rows
from syncline.measure.validation.published import TRAININGS, training_spec
from syncline.measure.validation.residuals import bases_of, covered_by_others
from syncline.planner.projection.plan import ProjectionPlan
from tests.measure.validation.priced import priced_rows

MEDIANS = {
    ("llm-foundry", "a100-40gb"): (78, 0.05),
    ("llm-foundry", "h100"): (24, 0.18),
    ("NeMo", "h100"): (21, 0.07),
    ("NeMo", "b200"): (6, 0.04),
    ("Megatron-Bridge", "gb200"): (4, 0.05),
    ("Megatron-Bridge", "h100"): (2, 0.05),
    ("Narayanan et al.", "a100"): (10, 0.03),
    ("Megatron-Bridge, experts", "gb200"): (3, 0.11),
    ("Megatron-Bridge, experts", "b200"): (4, 0.23),
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return priced_rows(TRAININGS)


@pytest.mark.parametrize(("group", "expected"), MEDIANS.items())
def test_published_trainings(rows, group, expected) -> None:  # type: ignore[no-untyped-def]
    """Median errors by source and GPU; no constant comes from a training."""
    errors = [abs(row["error"]) for row in rows if (row["source"], row["hardware"]) == group]
    assert (len(errors), np.median(errors) < expected[1]) == (expected[0], True), np.median(errors)


def test_llm_foundry_as_a_whole(rows) -> None:  # type: ignore[no-untyped-def]
    errors = [abs(row["error"]) for row in rows if row["source"] == "llm-foundry"]
    assert np.median(errors) < 0.08 and np.quantile(errors, 0.98) < 0.30


def test_steps_slow_down_with_scale_as_sharding_says(rows) -> None:  # type: ignore[no-untyped-def]
    """InternLM from 8 to 1,024 GPUs: 1.08 times slower in groups of four, 1.37 times with broadcasts to all."""

    def slowdown(settings: str, column: str) -> float:
        ends = [row for row in rows if row["regime"] == f"{settings}, A100" and row["gpus"] in ("8", "1024")]
        first, last = sorted(ends, key=lambda row: int(row["gpus"]))
        return float(last[column]) / float(first[column])  # type: ignore[arg-type]

    groups, everybody = "InternLM, ZeRO-1 in groups of 4", "InternLM"
    assert slowdown(groups, "predicted_ms") / slowdown(groups, "step_ms") == pytest.approx(1, abs=0.06)
    assert slowdown(everybody, "predicted_ms") / slowdown(everybody, "step_ms") == pytest.approx(1, abs=0.15)


def test_all_but_one_of_the_trainings_that_ran_fit() -> None:
    with TRAININGS.open(newline="") as file:
        plans = [(row, ProjectionPlan([training_spec(row)]).method_plans[0]) for row in csv.DictReader(file)]
    too_large = [row["model"] for row, method_plan in plans if not method_plan.memory_plan.fits.all()]
    assert (len(plans), too_large) == (172, ["nemotron-340b"])


def test_bounds_come_from_other_sources(rows) -> None:  # type: ignore[no-untyped-def]
    covered = covered_by_others(rows)
    dense = [inside for row, inside in zip(rows, covered, strict=True) if "experts" not in bases_of(row)[0]]
    assert 0.75 < np.mean([bool(inside) for inside in dense]) <= 1


def test_a_row_is_the_projection_of_its_settings() -> None:
    row = {
        "model": "llama-3-8b", "hardware": "{preset: h100, power_w: 500}", "network": "dgx-h100", "gpus": "16",
        "micro_batch": "1", "global_batch": "32", "tensor": "2", "sequence": "4096", "precision": "fp8",
        "kernels": "{compiled: true}",
    }  # fmt: skip
    spec = training_spec(row)
    assert (spec.workers, spec.batch_tokens, spec.product_format) == (16, 32 * 4096, "fp8")
    assert (spec.layout.tensor, spec.layout.data, spec.memory.micro_batches) == (2, 8, 4)
    assert spec.compute.kernels.compiled and spec.compute.machine.power_w == 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"global_batch": "33"},
            r"line 2: global_batch: got 33; expected a multiple of the 8 replicas times the micro",
        ),
        ({"hardware": "h99"}, r"line 2: hardware: got 'h99'"),
        ({"precision": "nvfp4"}, r"line 2: precision: got 'nvfp4'; expected one of 'bf16'"),
        ({"tensor": "x"}, r"line 2: tensor: got 'x'; expected a positive number"),
        (
            {"hardware": "rtx-4090", "network": ""},
            r"line 2: network: got ''; expected a network, unless the hardware is",
        ),
        ({"kernels": "{fused: 1}"}, r"line 2: compute.kernels.fused: got 1; expected no such field here"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    row = {
        "model": "llama-3-8b", "hardware": "h100", "network": "dgx-h100", "gpus": "8", "micro_batch": "1",
        "global_batch": "32", "tensor": "1", "precision": "bf16", "kernels": "{}", "step_ms": "5000",
    } | change  # fmt: skip
    path = tmp_path / "mine.csv"
    quoted = (f'"{text}"' for text in row.values())
    path.write_text(",".join(row) + "\n" + ",".join(quoted) + "\n")
    with pytest.raises(SynclineError, match=message):
        predicted_rows(path)
