"""``syncline pipeline``: the command end to end, its rows, its files, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.analysis.timelines import draw_schedules
from syncline.costmodel.layouts.pipelines import CLOSED_FORMS, bubble
from syncline.costmodel.network.link import Link
from syncline.runs import pipeline as experiment
from syncline.runs.pipeline import MOST_STAGES, makespan_closed_form_s, pipeline
from syncline.sim import report, run_pipeline
from syncline.specs import PipelineSpec, load_spec
from syncline.specs.pipeline import FREE

ASYNC = ("--schedule", "async-1f1b", "--stages", "8", "--microbatches", "64", "--forward", "1", "--backward", "2")
SMALL = ("--stages", "2", "--microbatches", "2")
FILES = ["figures/schedules.png", "manifest.json", "run.json", "spec.yaml", "timeline.parquet", "trace.json"]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def spec_of(**fields) -> PipelineSpec:
    given = {"kind": "pipeline", "name": "p", "schedules": ["1f1b"], "stages": 2, "microbatches": 4}
    return PipelineSpec.model_validate(given | {"forward": 1, "backward": 2} | fields)


def told_of(spec: PipelineSpec, name: str):
    return report(run_pipeline(spec.pipeline(name), spec.links[0]), spec.build_schedule(name), spec.stages)


def test_a_schedule_without_a_file(command, tmp_path):
    done = command("pipeline", *ASYNC, "--json")
    result = json.loads(done.out)
    (row,) = result["rows"]
    assert (done.code, result["folder"], result["interrupted"]) == (0, "runs/pipeline-schedules", False)
    assert (row["schedule"], row["stages"], row["microbatches"], row["network"]) == ("async-1f1b", 8, 64, "free")
    assert row["makespan_s"] == row["closed_form_s"] == 3 * (64 + 8 - 1)
    assert row["bubble"] == pytest.approx(7 / 71) and row["utilisation"] == pytest.approx(64 / 71)
    for k, stage in enumerate(row["per_stage"]):
        assert stage["delays"] == [min(i, 7 - k) for i in range(64)] and stage["delay_steady"] == 7 - k
        assert (stage["stage"], stage["peak_activations"], stage["weight_versions"]) == (k + 1, 8 - k, 8 - k)
        assert stage["activations_bytes"] is None and stage["weights_bytes"] is None
    assert files_of(tmp_path / "runs" / "pipeline-schedules") == FILES
    assert json.loads((tmp_path / "runs/pipeline-schedules/run.json").read_text())["rows"] == result["rows"]


def test_playing_schedules_loads_no_torch():
    code = "import sys, syncline.runs.pipeline; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_it_wrote_can_be_run_again_and_gives_the_same(command, tmp_path):
    options = (
        "--schedule",
        "greedy,zb-h1",
        "--network",
        "1ms,1Gbit/s",
        "--activation-bytes",
        "1 MB",
        "--jitter",
        "0.3",
    )
    first = command("pipeline", *SMALL, *options, "--seed", "4", "--out", "one", "--json")
    again = command("pipeline", "one/spec.yaml", "--out", "two", "--json")
    assert first.code == again.code == 0
    assert json.loads(first.out)["rows"] == json.loads(again.out)["rows"]
    tables = [pq.read_table(tmp_path / name / "timeline.parquet") for name in ("one", "two")]
    assert tables[0].equals(tables[1])


def test_tables_for_people_name_each_schedule_and_stage(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "120")
    shown = command("pipeline", *SMALL, "--out", "all")
    assert (shown.code, shown.out) == (0, "") and "2 stages, 2 micro-batches, free links" in shown.err
    for name in load_spec("pipeline-schedules").schedules:
        assert sum(line.startswith(f" {name} ") for line in shown.err.splitlines()) == 1 + 2
    assert "trace.json  (opens in ui.perfetto.dev)" in shown.err
    many = command("pipeline", *SMALL, "--schedule", "1f1b", "--stages", "20", "--out", "many")
    assert sum(line.startswith(" 1f1b ") for line in many.err.splitlines()) == 1 + MOST_STAGES


def test_schedules_on_networks_side_by_side(command, tmp_path):
    networks = ("--network", "nvlink4", "--network", "wan")
    done = command("pipeline", *SMALL, "--schedule", "gpipe,1f1b", *networks, "--replicas", "2", "--set",
                   "gradient_bytes=1 MB", "--out", "out", "--json")  # fmt: skip
    rows = json.loads(done.out)["rows"]
    assert [(row["network"], row["schedule"]) for row in rows] == [
        ("nvlink4", "gpipe"), ("nvlink4", "1f1b"), ("wan", "gpipe"), ("wan", "1f1b"),
    ]  # fmt: skip
    assert rows[0]["makespan_s"] < rows[2]["makespan_s"]
    trace = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in trace if event["name"] == "process_name"]
    assert len(set(names)) == 4 * 2 * 2 and names[0] == "gpipe, nvlink4, replica 1, stage 1"
    assert names[-1] == "1f1b, wan, replica 2, stage 2"
    assert {event["name"] for event in trace if event["ph"] == "X"} >= {"forward", "backward", "gradient"}
    table = pq.read_table(tmp_path / "out" / "timeline.parquet").to_pydict()
    assert {*zip(table["method"], table["network"], strict=True)} == {(r["schedule"], r["network"]) for r in rows}


def test_memory_is_told_in_bytes_where_a_model_is_given(command):
    done = command("pipeline", "pipeline-gpt-350m", "--schedule", "1f1b,async-1f1b", "--network", "10gbe", "--json")
    sync, late = json.loads(done.out)["rows"]
    middle = 3 * 12 * 1024**2  # three blocks' parameters
    assert sync["closed_form_s"] is None  # the last stage is slower
    for k in range(1, 7):
        assert sync["per_stage"][k]["weights_bytes"] == 2 * middle
        assert late["per_stage"][k]["weights_bytes"] == (8 - k) * 2 * middle
        assert late["per_stage"][k]["activations_bytes"] == sync["per_stage"][k]["activations_bytes"]
    tokens, width = 8192, 1024
    assert sync["per_stage"][6]["activations_bytes"] == 2 * 3 * tokens * width * 34


@settings(max_examples=30)
@given(
    name=st.sampled_from(CLOSED_FORMS),
    stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    chunks=st.integers(2, 3),
    forward=st.sampled_from([1.0, 1.5]),
)
def test_the_closed_form_is_what_happens(name, stages, groups, chunks, forward):
    fields = {"chunks": chunks} if name == "interleaved" else {}
    spec = spec_of(schedules=[name], stages=stages, microbatches=stages * groups, forward=forward, **fields)
    told, expected = told_of(spec, name), makespan_closed_form_s(spec, name, FREE)
    assert told.makespan_s == pytest.approx(expected, rel=1e-9)
    if name != "zb-h1":
        assert told.bubble == pytest.approx(bubble(stages, stages * groups, fields.get("chunks", 1)), abs=1e-9)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"forward": [1, 2]}, "1f1b"),
        ({"backward": [1, 2]}, "gpipe"),
        ({"schedules": ["greedy"]}, "greedy"),
        ({"max_in_flight": [1, 1]}, "1f1b"),
        ({"schedules": ["zb-h1"], "microbatches": 1}, "zb-h1"),
        ({"schedules": ["zb-h1"], "backward_weight": 0.1}, "zb-h1"),
    ],
)
def test_no_closed_form_is_told_where_there_is_none(fields, name):
    assert makespan_closed_form_s(spec_of(**fields), name, FREE) is None


def test_a_limit_of_one_micro_batch_leaves_one_stage_busy():
    """With one micro-batch in flight at each stage they go through the pipeline one after another."""
    told = told_of(spec_of(max_in_flight=1), "1f1b")
    assert told.makespan_s == 4 * 2 * (1 + 2)
    assert [stage.peak_activations for stage in told.stages] == [1, 1]


def test_link_latency_of_half_a_forward_holds_eight_stages_back():
    """K micro-batches share a round trip: utilisation tends to K (F + B) / (K (F + B) + 2 (K - 1) L)."""
    spec = spec_of(schedules=["async-1f1b"], stages=8, microbatches=256, networks=[Link(0.5, 1e9, "half")])
    told = told_of(spec, "async-1f1b")
    limit = 8 * 3 / (8 * 3 + 2 * 7 * 0.5)
    assert limit == pytest.approx(0.774, abs=1e-3)
    assert told.stages[0].utilisation == pytest.approx(limit, rel=0.03)
    assert [stage.delay_steady for stage in told.stages] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_the_picture_shows_the_beginning_of_what_is_long(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("syncline.analysis.timelines.draw_schedules", lambda panels: drawn.extend(panels) or (
        draw_schedules(panels[:1])
    ))  # fmt: skip
    monkeypatch.setattr(experiment, "LEAST_TASKS_DRAWN", 20)
    monkeypatch.setattr(experiment, "MOST_TASKS_DRAWN", 20)
    monkeypatch.setattr(experiment, "MOST_STAGES_DRAWN", 6)
    names = ["gpipe", "1f1b", "async-1f1b", "zb-h1"]
    pipeline(spec_of(schedules=names, microbatches=20), tmp_path / "out")
    assert [panel.title for panel in drawn] == [f"{name} (its beginning)" for name in names[:3]]
    assert all(0 < len(panel.tasks) <= 21 for panel in drawn)


def test_the_trace_of_what_is_long_has_its_first_micro_batches(monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "MAX_TRACED_SPANS", 60)
    pipeline(spec_of(microbatches=20), tmp_path / "out")
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    steps = {event["args"]["step"] for event in events if event["ph"] == "X"}
    table = pq.read_table(tmp_path / "out" / "timeline.parquet")
    assert steps == set(range(int(20 * 60 / table.num_rows))) and set(table["step"].to_pylist()) == set(range(20))


def test_a_schedule_that_waits_for_ever_is_one_line_and_leaves_nothing(command, tmp_path):
    done = command("pipeline", *SMALL, "--schedule", "async-1f1b", "--max-in-flight", "1,2")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "--max-in-flight" in done.err and "stage 2" in done.err and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--microbatches", "6"), "--microbatches: got 6; expected a multiple of the 4 stages"),
        (("--schedule", "gpip"), "--schedule.0: got 'gpip'; expected one of '1f1b', 'async-1f1b', "),
        (("--schedule", "gpipe", "--chunks", "2"), "--chunks: got 2; expected none without the schedule"),
        (("--schedule", "zb-h1", "--max-in-flight", "2"), "--max-in-flight: got (2,); expected none without one of"),
        (("--schedule", "greedy", "--max-in-flight", "0"), "--max-in-flight: got 0; expected at least 1: stage 1"),
        (
            ("--schedule", "1f1b", "--max-in-flight", "2,1"),
            "--max-in-flight: got (2, 1); expected one value, or one for each of",
        ),
        (("--forward", "soon"), "--forward.0: got 'soon'; expected a time with its unit"),
        (("--forward", "1,2"), "--forward: got (1.0, 2.0); expected one value, or one for each of the 4 stages"),
        (("--backward-weight", "3"), "--backward-weight: got 3.0; expected at most the backward's 2 s"),
        (("--activation-bytes", "big"), "--activation-bytes: got 'big'; expected a size with its unit"),
        (("--network", "10gb"), "--network.0: got '10gb'; expected one of"),
        (("--stages", "0"), "--stages: got 0; expected at least 1"),
        (("--microbatches", "200000"), "--microbatches: got 200000; expected at most 131,072"),
        (("pipeline-gpt-350m", "--stages", "25"), "--stages: got 25; expected at most 24: gpt-350m has 24 blocks"),
        (("pipeline-gpt-350m", "--forward", "1"), "--forward: got (1.0,); expected none with a model"),
        (("compare-text",), "kind: got 'compare'; expected one of 'pipeline'; a spec of"),
    ],
)
def test_a_mistake_is_one_line(arguments, said, command, tmp_path):
    done = command("pipeline", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"error: {said}") and not list(tmp_path.iterdir())
