"""Rows of a projection for a whole training: by hand, and without what nobody knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import syncline as sl
from syncline.costmodel.scaling.predict import TrainingAtScale, predicted_loss, tokens_for_loss
from syncline.methods import method_of
from syncline.planner.projection.parquet import write_rows
from syncline.planner.projection.training_totals import loss_fit_method

METHODS = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}, "demo"]
SETTING = {
    "networks": ["two-sites"],
    "workers": [4],
    "methods": METHODS,
    "tokens_per_worker": 32768,
    "thresholds": False,
}
PER_STEP = 4 * 32768
N = 162_201_600


def test_tokens_decide_steps_and_losses() -> None:
    rows = sl.project(**SETTING, tokens="3.244B", hardware=["h100"]).rows
    plain = sl.project(**SETTING, hardware=["h100"]).rows
    for row, before in zip(rows, plain, strict=True):
        same = {name: row[name] for name in before if not name.startswith("wall_clock")}
        for name, value in same.items():
            assert value == (pytest.approx(before[name], rel=5e-3) if isinstance(value, float) else before[name]), name
        assert row["wall_clock_s"] == pytest.approx(row["training_s"], rel=1e-4)
        assert row["training_s"] == pytest.approx(row["step_time_s"] * 3.244e9 / PER_STEP)
        assert row["training_high_s"] == pytest.approx(row["step_time_high_s"] * 3.244e9 / PER_STEP)
    ddp, diloco, demo = rows
    assert ddp["loss"] == predicted_loss(TrainingAtScale("ddp-adam", N, 3.244e9)).loss
    assert diloco["loss"] == predicted_loss(TrainingAtScale("diloco", N, 3.244e9, replicas=4)).loss
    assert (diloco["loss_fit"], diloco["extrapolation"]) == ("diloco", False)
    assert demo["loss"] is None and demo["loss_unknown"].startswith("method: got 'demo'")


def test_a_target_decides_tokens() -> None:
    rows = sl.project(**SETTING, target_loss=2.95, extrapolate=True).rows
    told = tokens_for_loss(2.95, TrainingAtScale("diloco", N, replicas=4, batch_tokens=PER_STEP), extrapolate=True)
    assert rows[1]["tokens"] == pytest.approx(told.value, rel=1e-9) and rows[1]["loss"] == pytest.approx(2.95)
    assert rows[1]["tokens_factor"] == pytest.approx(rows[1]["tokens"] / rows[0]["tokens"])
    assert rows[1]["training_s"] == pytest.approx(told.value / PER_STEP * rows[1]["step_time_s"])
    assert rows[1]["training_low_s"] < rows[1]["training_s"] < rows[1]["training_high_s"]
    assert rows[2]["training_s"] is None
    refused = sl.project(**SETTING, target_loss=2.95).rows
    assert refused[1]["training_s"] is None and "tokens_per_parameter" in refused[1]["loss_unknown"]


def test_money_and_energy_by_hand() -> None:
    prices = {"accelerator_hour": 3.0, "egress_gb": 0.05, "power_w": 700, "idle_power_w": 100, "pue": 1.2,
              "carbon_kg_per_kwh": 0.4, "currency": "EUR"}  # fmt: skip
    ddp, diloco, demo = sl.project(**SETTING, prices=prices, steps=1000).rows
    for row, out in ((ddp, 2), (diloco, 2)):  # all-reduces of two sites
        time, busy = 1000 * row["step_time_s"], 1000 * row["compute_s"]
        assert row["egress_bytes"] == pytest.approx(1000 * out * row["bytes_per_worker"])
        joules = 1.2 * 4 * (700 * busy + 100 * (time - busy))
        assert row["energy_j"] == pytest.approx(joules)
        assert row["carbon_kg"] == pytest.approx(0.4 * joules / 3.6e6)
        assert row["cost"] == pytest.approx(4 * time / 3600 * 3 + row["egress_bytes"] / 1e9 * 0.05)
        assert row["cost_low"] < row["cost"] < row["cost_high"] and row["currency"] == "EUR"
    assert demo["egress_bytes"] == pytest.approx(1000 * 4 * demo["bytes_per_worker"])  # what 4 workers gather


def test_waiting_at_unknown_power_is_between_nothing_and_computing() -> None:
    (row,) = sl.project(**SETTING | {"methods": ["ddp-adam"]}, hardware=["h100"], prices={"accelerator_hour": 1}).rows
    time, busy = 9984 * row["step_time_s"], 9984 * row["compute_s"]
    assert row["energy_j"] == pytest.approx(4 * 700 * time)
    assert row["energy_low_j"] == pytest.approx(4 * 700 * busy)
    assert row["carbon_kg"] is None


def test_they_are_rows_as_others_are(tmp_path: Path) -> None:
    result = sl.project(**SETTING, tokens="3.244B", prices={"accelerator_hour": 3.0})
    frame = result.summary
    assert list(frame["cost"]) == [row["cost"] for row in result.rows]
    assert frame["energy_j"].isna().sum() == sum(row["energy_j"] is None for row in result.rows)
    file = write_rows(result.record["rows"], tmp_path / "rows.parquet")
    units = {field.name: (field.metadata or {}).get(b"unit") for field in pq.read_schema(file)}
    assert (units["energy_j"], units["tokens"], units["training_s"]) == (b"J", b"tokens", b"s")


def test_a_paper_has_no_training_to_pay_for() -> None:
    with pytest.raises(sl.SpecError, match="spec: got 'curvadion-table2'; expected a projection"):
        sl.project("curvadion-table2", prices={"accelerator_hour": 1})
    with pytest.raises(sl.SpecError, match=r"tokens: got .*; expected none with a target loss"):
        sl.project(tokens=1e9, target_loss=2.0)
    with pytest.raises(sl.SpecError, match="tokens: got 'many'; expected a positive number"):
        sl.project(tokens="many")


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({"kind": "diloco"}, "diloco"),
        ({"kind": "diloco", "label": "mine"}, "diloco"),
        ({"kind": "diloco", "wire": "bf16"}, "diloco, otherwise"),
        ({"kind": "diloco", "outer_lr": 1.0, "outer_momentum": 0.0}, "diloco, otherwise"),
        ({"kind": "diloco", "compressor": "lp", "label": "small"}, "small"),
        ({"kind": "streaming-diloco", "wire": "bf16"}, "streaming-diloco"),
        ({"kind": "streaming-diloco", "stream": {"tau": 5}}, "streaming-diloco, otherwise"),
        ({"kind": "ddp"}, "ddp-adam"),
        ({"kind": "ddp", "rule": "sgdm"}, "ddp-sgdm"),
        ({"kind": "ddp", "rule": "sgdm", "label": "ddp-adam"}, "ddp-adam, otherwise"),
    ],
)
def test_fits_cover_methods_as_they_were_trained(fields: dict[str, Any], covered: str) -> None:
    assert loss_fit_method(method_of({"lr": 0.003} | fields)) == covered


def test_replicas_of_a_layout_are_the_fit_s() -> None:
    asked = {"model": "llama-7b", "cluster": "two-sites-a100", "methods": [METHODS[1]], "layout": "data=32"}
    (row,) = sl.project(**asked, tokens="140B", tokens_per_worker=8192, extrapolate=True, thresholds=False).rows
    assert row["replicas"] == 2 and "replicas" not in row["beyond"]
