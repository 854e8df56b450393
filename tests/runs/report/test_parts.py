"""What the page shows of a result, held against the rows and files that it is of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline as sl
from syncline.runs.report.charts import OWN_NETWORK, collectives_chart, final_curves, lines_chart, spans_chart
from syncline.runs.report.reported import Reported, provenance_of, titled
from syncline.runs.report.sentences import summary_of_result, warnings_of
from syncline.runs.report.shares import ranges_of, time_shares
from tests.runs.report.kept import HARMFUL, compared
from tests.runs.report.test_page import data_of

ROW = {
    "method": "a", "network": "wan", "step_time_s": 0.1, "compute_s": 0.05, "encode_s": 0.01, "trigger_s": 0.0,
    "optimizer_s": 0.0, "communication_s": 0.07, "exposed_communication_s": 0.04,
}  # fmt: skip


def told(rows, command="compare", **more) -> Reported:
    return Reported("it", command, {"rows": rows, **more}, ())


def test_equal_titles_get_the_name_of_the_folder_or_its_path_or_a_number() -> None:
    folders = [Path("runs/x"), Path("runs/y"), Path("a/last"), Path("b/last"), None]
    results = [replace(told([]), folder=folder) for folder in folders]
    titles = [result.title for result in titled(results)]
    assert titles == ["it (x)", "it (y)", "it (a/last)", "it (b/last)", "it (5)"]
    assert [result.title for result in titled([results[0]] * 2)] == ["it (1)", "it (2)"]


def test_a_step_is_its_parts_and_what_is_hidden_stands_beside():
    [group] = time_shares([ROW])["groups"]
    [bar] = group["bars"]
    assert {part["kind"]: part["share"] for part in bar["parts"]} == pytest.approx(
        {"compute": 50, "encode": 10, "exposed": 40}
    )
    assert bar["hidden"]["share"] == pytest.approx(30)
    rest = time_shares([ROW | {"compute_s": 0.03}])["groups"][0]["bars"][0]["parts"]
    assert {part["kind"]: part["share"] for part in rest}["rest"] == pytest.approx(20)
    assert time_shares([{"method": "a", "step_time_s": None}]) is None


def test_the_parts_of_real_rows_are_all_of_a_step():
    for group in time_shares(compared().rows)["groups"]:
        for bar in group["bars"]:
            assert sum(part["share"] for part in bar["parts"]) == pytest.approx(100, abs=0.2)


def test_ranges_stand_where_their_ends_are():
    rows = [
        {"method": "a", "network": "n", "loss": 2.0, "loss_min": 1.0, "loss_max": 3.0},
        {"method": "b", "network": "n", "loss": 4.0, "loss_min": 4.0, "loss_max": 5.0},
        {"method": "c", "network": "n", "loss": None, "loss_min": None, "loss_max": None},
    ]
    [group] = ranges_of(rows)
    [column] = group["columns"]
    first, second, third = column["cells"]
    assert [first[end] for end in ("low", "at", "high")] == [0, 25, 50] and third is None
    assert [second[end] for end in ("low", "at", "high")] == [75, 75, 100] and group["names"] == ["a", "b", "c"]
    far = ranges_of([{"method": "a", "network": "n", "speedup": 10.0, "speedup_low": 1.0, "speedup_high": 100.0}])
    assert far[0]["columns"][0]["cells"][0]["at"] == pytest.approx(50) and far[0]["columns"][0]["mark"] == 0


def test_spans_are_those_of_the_timeline_in_their_round():
    path = compared().folder / "timeline.parquet"
    chart = spans_chart(path)
    frame = pq.read_table(path).to_pandas()
    assert [one["name"] for one in chart["choices"]] == [
        f"{method} on {network}" for method in ("ddp-adam", HARMFUL) for network in ("10gbe", "dsl")
    ]
    one = chart["choices"][chart["first"]]
    assert one["name"] == f"{HARMFUL} on dsl" and one["lanes"] == [f"worker {n}" for n in range(4)]
    own = frame[(frame["method"] == HARMFUL) & (frame["network"] == "dsl")]
    start_s = one["from"] + one["tick"] * np.array(one["start"])
    for n in range(len(start_s)):
        lane = own[own["worker"] == one["lane"][n]]
        near = lane[np.isclose(lane["start_s"], start_s[n], atol=2 * one["tick"])]
        lengths = (near["end_s"] - near["start_s"]).to_numpy()
        assert np.isclose(lengths, one["tick"] * one["length"][n], atol=3 * one["tick"]).any()
    steps = sorted({int(word.rpartition(" ")[2]) for word in one["words"]})
    assert steps == list(range(4, 16))  # an average every 8 steps: from three before the first to the second


def test_what_is_sent_is_the_ledger():
    ledger = pq.read_table(compared().folder / "ledger.parquet").to_pandas()
    chart = collectives_chart(compared().folder / "ledger.parquet", ["ddp-adam", HARMFUL])
    assert chart["all"] == 40 and chart["steps"] == 32
    for lane in chart["lanes"]:
        own = ledger[(ledger["method"] == lane["name"]) & (ledger["step"] < chart["steps"])]
        by_step = own.groupby("step")["payload_bytes"].sum()
        assert lane["steps"] == by_step.index.tolist() and lane["bytes"] == by_step.astype(int).tolist()


def test_words_are_of_the_rows():
    rows = compared().rows
    said = " ".join(summary_of_result(told(rows)))
    first = min((row for row in rows if row["network"] == "dsl"), key=lambda row: row["time_to_target_s"] or np.inf)
    assert f"On dsl {first['method']} is the first" in said and "4 workers, 40 steps" in said
    assert summary_of_result(told([])) == ["There are no rows, as nothing was finished."]
    assert summary_of_result(told([{"a": 1}, {"a": 2}], "vote-ties")) == ["2 rows of vote-ties."]


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([ROW | {"diverged_at": 7, "diverged_seeds": 2}], {}, "a diverged at step 7 (2 seeds)."),
        ([ROW], {"interrupted": True}, "It was interrupted"),
        ([ROW], {"failed": "rank 1 died"}, "A real process failed: rank 1 died"),
        ([ROW | {"error": "no memory"}, ROW], {}, "1 of 2 runs failed, the first with: no memory"),
        ([ROW | {"target_loss": 2.0, "time_to_target_s": None}], {}, "a: a loss of 2 is not reached."),
        ([ROW | {"speedup_low": 0.9, "speedup_high": 1.2}], {}, "a on wan: by its bounds"),
        ([ROW | {"fits": False}], {}, "more than a worker's memory holds"),
        ([ROW | {"not_timed": "too long"}], {}, "a: no time, as too long."),
        ([ROW | {"extrapolation": True}], {}, "extrapolated"),
    ],
)
def test_what_is_to_be_known_is_said(rows, more, said):
    lines = warnings_of(told(rows, **more))
    assert len(lines) == 1 and said in lines[0]
    assert warnings_of(told([ROW])) == []


def test_code_that_differs_from_its_commit_is_said(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"git_commit": "0123456789abcdef+", "syncline": "0.0.1", "rows": []}))
    one = Reported("it", "run", {"rows": [ROW]}, (), folder=tmp_path)
    said = warnings_of(one)
    assert "uncommitted changes" in said[0] and "Syncline 0.0.1" in said[1]
    assert ("commit", "0123456789ab+") in provenance_of(one)["versions"]


def test_a_pipeline_s_tasks_are_drawn_with_their_micro_batches():
    result = sl.pipeline(schedules=["gpipe", "interleaved"], stages=2, microbatches=4, forward="1 ms", backward="2 ms")
    chart = data_of(result.report().html)["charts"]["r1-spans"]
    assert chart["stacked"] and [one["name"] for one in chart["choices"]] == ["gpipe on free", "interleaved on free"]
    first = chart["choices"][0]
    assert first["lanes"] == ["stage 1", "stage 2"] and len(first["lane"]) == 2 * 2 * 4
    assert sorted(first["numbers"]) == sorted(["1", "2", "3", "4"] * 4) and first["kinds"] == ["forward", "backward"]
    assert first["tick"] * 1e6 == pytest.approx(result.rows[0]["makespan_s"])


def test_a_sweep_has_the_lines_of_its_best_configurations():
    swept = sl.sweep(
        {"kind": "run", "name": "bowl", "problem": {"kind": "quadratic", "spectrum": [1.0, 0.1]}},
        {"method.lr": [0.001, 0.01]}, method="ddp-sgdm", network="wan", workers=2, steps=20, seeds=2,
        eval_every=5, compute={"seconds": 1e-3}, jobs=1,
    )  # fmt: skip
    html = swept.report().html
    chart = data_of(html)["charts"]["r1-losses"]
    assert [one["name"] for one in chart["series"]] == ["2: lr 0.01", "1: lr 0.001"]
    best = swept.best()
    assert [chart["columns"][one["y"]][-1] for one in chart["series"]] == pytest.approx(best["loss"].tolist(), rel=1e-4)
    assert "The lowest median loss is" in html
    assert [one["x"] for one in chart["panels"]] == ["steps", "bytes", "on wan"]
    last = {name: chart["columns"][place][-1] for name, place in chart["series"][0]["x"].items()}
    row = swept.rows[-1]
    assert last == pytest.approx(
        {"steps": 20, "bytes": 20 * row["bytes_per_worker"], "on wan": row["wall_clock_s"]}, rel=1e-4
    )
    assert "syncline sweep spec.yaml --grid method.lr=0.001,0.01 --seeds &#39;[0, 1]&#39;" in html
    assert "lr: 0.001" in html.partition("spec.yaml, with every default")[2]


def test_the_finals_of_a_replication_stand_on_the_clock_of_each_network(tmp_path):
    rows = [
        {"method": "a", "seed": seed, "bytes_per_worker": 8.0, "step_time_s": 0.5, "step": step, "loss": 2.0 - step / 4}
        for seed in (0, 1) for step in (0, 4)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "finals.parquet")
    alone = final_curves(tmp_path / "finals.parquet")
    assert alone.sent_bytes["a"].tolist() == [0, 32]
    assert {name: clock.tolist() for name, clock in alone.curves[0].clock_s.items()} == {OWN_NETWORK: [0, 2]}
    elsewhere = [
        {"method": "a", "setting": "finals", "network": "wan", "step_time_s": 2.0},
        {"method": "a", "setting": "K8", "network": "wan", "step_time_s": 9.0},
    ]
    pq.write_table(pa.Table.from_pylist(elsewhere), tmp_path / "networks.parquet")
    both = final_curves(tmp_path / "finals.parquet", tmp_path / "networks.parquet")
    assert {name: clock.tolist() for name, clock in both.curves[0].clock_s.items()} == {"wan": [0, 8]}
    assert lines_chart(both, ["a"])["panels"][-1]["title"] == "Time on wan"


def test_verdicts_are_counted_in_a_sentence():
    def said(*states):
        return summary_of_result(told([{"state": state} for state in states], "replicate"))

    assert said("fails", "unknown", "fails", "holds") == ["Of 4 comparisons 2 fail, 1 is unknown and 1 holds."]
    assert said("holds") == ["One comparison, which holds."]
