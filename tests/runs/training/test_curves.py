"""Losses on the clock as files, against what the training and the clock say one by one."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from syncline.runs.compare import compare
from syncline.runs.run import run
from syncline.runs.training import results
from syncline.runs.training.results import figure_of_file
from syncline.runs.training.train_and_time import time_method
from tests.runs.examples import bowl, bowl_run, trained


def read(folder, name="curves"):
    return pd.read_parquet(folder / f"{name}.parquet")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "bowl"
    return folder, compare(bowl(), folder, jobs=1, figures=False)


def test_a_row_has_what_history_clock_and_ledger_say_of_it(compared):
    spec, (folder, _) = bowl(), compared
    rows = iter(read(folder).to_dict("records"))
    methods = trained(spec)
    for link in spec.networks:
        for one in methods:
            clock = time_method(spec, one, link)
            for s, seed in enumerate(spec.seeds):
                sent = 0.0
                for step in range(spec.steps + 1):
                    row, before = next(rows), step - 1
                    sent += sum(call.payload_bytes for call in one.calls() if call.step == before)
                    at = np.flatnonzero(one.history.eval_step == step)
                    expected = {
                        "method": one.method, "network": link.name, "seed": seed, "step": step, "bytes": sent,
                        "seconds": clock.step_end_s[before] if step else 0.0,
                        "loss": one.history.evaluation["loss"][at[0], s] if len(at) else np.nan,
                        "train_loss": one.history.loss[before, s] if step else np.nan,
                        "distance": (
                            one.history.trace["distance"][before, s] if step
                            else one.history.evaluation["distance"][0, s]
                        ),
                        "spread": one.history.trace["spread"][before, s] if step else np.nan,
                    }  # fmt: skip
                    assert {name: row[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    assert next(rows, None) is None


def test_the_last_rows_are_those_of_the_comparison(compared):
    folder, told = compared
    last = read(folder).groupby(["method", "network"]).last()
    for row in told["rows"]:
        end = last.loc[row["method"], row["network"]]
        assert end["seconds"] == row["wall_clock_s"]
        assert end["bytes"] / row["steps"] == pytest.approx(row["bytes_per_worker"])


def test_the_summary_has_each_seed_s_own_loss_and_time(compared):
    folder, told = compared
    summary, lines = read(folder, "summary"), read(folder).dropna(subset="loss")
    assert len(summary) == 8 and set(summary["seed"]) == {0, 1}
    for row in told["rows"]:
        own = summary[(summary["method"] == row["method"]) & (summary["network"] == row["network"])]
        assert own["loss"].median() == row["loss"] and own["loss"].max() == row["loss_max"]
        assert set(own["speedup"]) == {row["speedup"]} and set(own["step_time_s"]) == {row["step_time_s"]}
    for _, one in summary.iterrows():
        line = lines[(lines[["method", "network", "seed"]] == one[["method", "network", "seed"]]).all(axis=1)]
        reached = line["loss"] <= one["target_loss"]
        if not reached.any():
            assert np.isnan(one["time_to_target_s"])
            continue
        first = int(np.argmax(reached))
        around = line.iloc[max(0, first - 1) : first + 1]
        assert around["seconds"].iloc[0] <= one["time_to_target_s"] <= around["seconds"].iloc[-1]


def test_units_and_names_are_in_the_files(compared):
    folder, told = compared
    for name in ("curves", "summary"):
        schema = pq.read_schema(folder / f"{name}.parquet")
        units = {field.name: field.metadata[b"unit"] for field in schema if b"unit" in (field.metadata or {})}
        assert {"curves": b"seconds", "summary": b"step_time_s"}[name] in map(str.encode, units)
        assert set(units.values()) <= {b"s", b"B", b"steps", b"completed steps"} | {
            unit for column, unit in units.items() if "loss" in column
        }
        noted = json.loads(schema.metadata[b"syncline"])
        assert noted["target_loss"] == told["target_loss"] and noted["networks"]["10gbe"].startswith("50 us one way")


def test_a_long_training_keeps_every_nth_step_and_all_evaluations(compared, tmp_path, monkeypatch):
    whole, _ = compared
    monkeypatch.setattr(results, "MOST_ROWS", 100)
    monkeypatch.setattr(results, "ROWS_AT_A_TIME", 10)
    compare(bowl(), tmp_path / "thinned", jobs=1, figures=False)
    thinned, every = read(tmp_path / "thinned"), 40 * 2 * 2 * 2 // 100 + 1
    steps = sorted({*range(0, 40, every), 0, 10, 20, 30, 40})
    assert json.loads(pq.read_schema(tmp_path / "thinned" / "curves.parquet").metadata[b"syncline"])["every_steps"] == 4
    kept = read(whole)[lambda rows: rows["step"].isin(steps)].reset_index(drop=True)
    pd.testing.assert_frame_equal(thinned, kept)
    assert pq.ParquetFile(tmp_path / "thinned" / "curves.parquet").num_row_groups == 8


def test_the_picture_is_drawn_from_the_file_alone(compared):
    folder, _ = compared
    figure = figure_of_file(folder)
    lines = read(folder).dropna(subset="loss").groupby(["network", "method", "step"], sort=False)
    median = lines["loss"].median()
    assert [axes.get_title(loc="left").split("\n")[0] for axes in figure.axes] == ["10gbe", "wan"]
    for axes in figure.axes:
        network = axes.get_title(loc="left").split("\n")[0]
        drawn = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
        assert set(drawn) == {"ddp-sgdm", "local-adam"}
        for method, line in drawn.items():
            expected, points = median[network, method].to_numpy(), list(line.get_ydata())
            if len(points) > len(expected):  # the line passes through its ring at the target too
                (ring,) = {ring.get_ydata()[0] for ring in axes.lines if ring.get_label() == "_reached"}
                points.remove(ring)
            assert points == pytest.approx(expected)


def test_a_run_has_the_same_files_and_one_that_diverged_keeps_what_is_not_finite(tmp_path):
    spec = bowl_run(method={"kind": "ddp", "rule": "sgdm", "lr": 1e30})
    run(spec, tmp_path / "lost", figures=False)
    lost = pq.read_table(tmp_path / "lost" / "curves.parquet")
    losses = lost["loss"].drop_null().to_numpy()
    assert np.isfinite(losses.reshape(2, -1)).any(0).tolist() == [True] + [False] * (len(losses) // 2 - 1)
    summary = read(tmp_path / "lost", "summary")
    assert summary["time_to_target_s"].isna().all() and summary["diverged_at"].notna().all()
    assert figure_of_file(tmp_path / "lost").axes
