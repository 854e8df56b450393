"""``syncline launch`` of a pipeline: the events' parameters and delays on real stages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from syncline.errors import SpecError
from syncline.measure.launching.pipeline import Stages, check_pipeline, launch_pipeline
from syncline.measure.launching.process import Launch
from syncline.sim import run_pipeline
from syncline.sim.pipelines.pipeline import Pipeline
from syncline.specs import PipelineSpec, load_spec

TEXT = {
    "kind": "text-gpt",
    "width": 8,
    "layers": 3,
    "heads": 2,
    "context": 8,
    "batch_size": 2,
    "tied": False,
    "validation_windows": 2,
}
FIELDS = {
    "kind": "pipeline",
    "name": "pipe",
    "schedules": ["1f1b", "async-1f1b"],
    "stages": 3,
    "microbatches": 7,
    "forward": "1 ms",
    "backward": "2 ms",
    "training": {"problem": TEXT, "method": {"kind": "ddp", "rule": "adam", "lr": 0.003}, "repeats": 2, "seed": 4},
}


def spec_of(**fields) -> PipelineSpec:
    return PipelineSpec.model_validate(FIELDS | fields)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[PipelineSpec, dict, Path]:
    spec, out = spec_of(), tmp_path_factory.mktemp("pipe") / "out"
    return spec, launch_pipeline(spec, out, Launch(device="cpu", keep_parameters=True)), out


@pytest.mark.parametrize("name", FIELDS["schedules"])
def test_parameters_and_losses_are_those_of_the_events(launched, name: str) -> None:
    spec, _, folder = launched
    stages, losses = Stages(spec, name), []
    for number in range(spec.training.repeats):
        math = stages.math_of_repeat(number)
        run_pipeline(Pipeline(stages.schedule, spec.stages, spec.durations(name), effects=math.effect), spec.links[0])
        losses += [float(math.losses[i]) for i in range(spec.microbatches)]
    found = torch.load(folder / "parameters.pt")[name]
    expected = {key: p.detach() for key, p in stages.model.named_parameters()}
    assert found.keys() == expected.keys()
    for key, p in expected.items():
        torch.testing.assert_close(found[key], p, rtol=0, atol=1e-6)
    table = pq.read_table(folder / "losses.parquet").to_pydict()
    of_name = [loss for schedule, loss in zip(table["schedule"], table["loss"], strict=True) if schedule == name]
    assert of_name == pytest.approx(losses, rel=1e-5)


def test_the_report_of_real_stages(launched) -> None:
    _, result, folder = launched
    for measured, simulated in zip(result["rows"], result["simulated"], strict=True):
        assert (measured["network"], simulated["network"]) == ("measured", "free")
        for name in ("delays", "peak_activations", "weight_versions"):  # of the order alone, whatever takes how long
            assert [one[name] for one in measured["per_stage"]] == [one[name] for one in simulated["per_stage"]]
        assert 0 < measured["bubble"] < 1 and 0 < measured["optimizer_s"] < measured["makespan_s"]
        assert measured["makespan_s"] in measured["repeat_s"] and measured["repeats"] == 2
        assert measured["replayed_s"] / measured["makespan_s"] - 1 == pytest.approx(measured["replayed_error"])
        assert measured["replayed_s"] > 0
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"measured, 1f1b: worker 0", "simulated, async-1f1b: worker 2"} < names


def test_spans_of_real_stages(launched) -> None:
    timeline = pq.read_table(launched[2] / "timeline.parquet").to_pylist()
    mine = [s for s in timeline if (s["network"], s["method"], s["worker"]) == ("measured", "async-1f1b", 1)]
    for stream in ("compute", "send"):
        of = [span for span in mine if span["stream"] == stream]
        assert all(a["end_s"] <= b["start_s"] for a, b in itertools.pairwise(of))
    kinds = [span["what"] for span in mine if span["stream"] == "compute" and span["what"] != "recv"]
    assert {kind: kinds.count(kind) for kind in kinds} == {"forward": 7, "backward": 7, "optimizer": 7}
    assert sum(span["what"] == "send" for span in mine) == 14  # activations on, gradients back
    assert {span["nbytes"] for span in mine if span["what"] == "send"} == {2 * 8 * 8 * 4}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"training": None}, "training"),
        ({"training": FIELDS["training"] | {"problem": "digits"}}, "training.problem.kind"),
        ({"training": FIELDS["training"] | {"problem": TEXT | {"layers": 2}}}, "training.problem.layers"),
        ({"training": FIELDS["training"] | {"problem": TEXT | {"tied": True}}}, "training.problem.tied"),
        ({"replicas": 2}, "replicas"),
        ({"schedules": ["1f1b", "greedy"]}, "schedules.1"),
    ],
)
def test_what_real_stages_cannot_play(fields: dict, path: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_pipeline(spec_of(**fields), Launch())
    assert caught.value.path == path


def test_the_bundled_spec_on_real_stages(command: Callable, tmp_path: Path) -> None:
    fewer = ("--set", "training.repeats=1", "--set", "microbatches=4", "--set", "training.problem.width=16")
    done = command("launch", "pipeline-text", *fewer, "--device", "cpu")
    assert done.code == 0 and "replayed" in done.err
    rows = json.loads((tmp_path / "runs" / "pipeline-text" / "run.json").read_text())["rows"]
    assert [(row["schedule"], row["stages"], row["per_stage"][0]["delays"]) for row in rows] == [
        ("1f1b", 4, [0, 0, 0, 0]),
        ("async-1f1b", 4, [0, 1, 2, 3]),
    ]
    loaded = load_spec("pipeline-text", (), PipelineSpec)
    check_pipeline(loaded, Launch())
    assert not loaded.warnings()
