"""Many settings priced at once are what each is alone."""

from __future__ import annotations

import pandas as pd
import pytest

import syncline as sl
from syncline.costmodel import MODELS
from syncline.errors import SpecError
from syncline.methods import METHODS, method_of
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.project import FEW_ROWS, group_specs, project, project_all
from syncline.planner.projection.projections import Options, left_out, variants
from syncline.specs import ProjectSpec, load_spec

HALF = {"latency": "1 ms", "bandwidth": "1 Gbit/s", "duplex": "half", "name": "half"}
UPLOAD = {"latency": "1 ms", "bandwidth": "1 Gbit/s", "upload": "100 Mbit/s", "name": "upload"}
PAYLOAD = {"latency": "1 ms", "bandwidth": "1 Gbit/s", "overhead": "10 us", "efficiency": 0.9, "name": "payload"}
NODES = {"per_node": 4, "inside": "nvlink4", "between": "ib-ndr", "name": "nodes"}
PIECES = {"latency": "20 ms", "bandwidth": "1 Gbit/s", "nccl": True, "name": "pieces"}
WINDOWS = PIECES | {"tcp": {"connections": 4}, "name": "windows"}
OPENED = {"latency": "20 ms", "bandwidth": "200 Mbit/s", "tcp": True, "name": "opened"}
LINKS = ["10gbe", "wan", UPLOAD, PAYLOAD]
METHODS_OF_ALL_KINDS = ["ddp-adam", "diloco", "demo", "one-bit-adam", "lion-cub-1bit", "lion-cub", "streaming-mt-dao"]


def spec(**fields):
    return load_spec("project-gpt-160m", {"steps": 320, "methods": METHODS_OF_ALL_KINDS, "networks": LINKS} | fields,
                     ProjectSpec)  # fmt: skip


def rows_alike(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert list(one) == list(other)
        assert one == {
            name: pytest.approx(value, rel=1e-12, abs=0) if isinstance(value, float) else value
            for name, value in other.items()
        }
        assert [type(value) for value in one.values()] == [type(value) for value in other.values()]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"algorithm": "auto", "overlap": "ddp"},
        {"algorithm": "nccl", "overlap": "async"},
        {"algorithm": "gloo"},
        {"algorithm": "auto", "networks": [HALF, "wan"]},
        {"networks": [PIECES, WINDOWS, OPENED]},
        {"algorithm": "nccl", "overlap": "ddp", "networks": [PIECES, WINDOWS, OPENED]},
        {"algorithm": "auto", "overlap": "async", "networks": [WINDOWS], "methods": ["ddp-adam", "streaming-mt-dao"]},
        {"algorithm": "auto", "protocol": "rendezvous", "methods": ["ddp-adam", "one-bit-adam"]},
        {"networks": [NODES, "wan"], "methods": ["ddp-adam", "diloco", "local-adam"], "workers": 8},
        {
            "memory": {"activations": "stored"},
            "compute": {"hardware": "a100", "encode_bandwidth": "2 GB/s", "readback_latency": "1 ms"},
        },
    ],
    ids=str,
)
def test_settings_and_links_at_once_are_each_alone(fields):
    """Machines side by side with the first fields alone: what they change is the same for all others."""
    counts = "8,16" if NODES in fields.get("networks", []) else "1,300" if fields else "7,300"
    machines = [] if fields else ["rtx-3090"]
    specs = variants(spec(**fields), Options(counts, hardware=machines))
    alone = []
    for one in specs:
        of_each = [project(one.model_copy(update={"networks": (network,)})) for network in one.networks]
        alone += [row for rows in of_each for row in rows]
    rows_alike(project_all(specs), alone)


def test_neighbours_share_a_plan_and_methods_may_be_missing():
    specs = variants(spec(), Options("4,300", models=["gpt-160m,olmo-1b"], hardware=["h100,a100"]))
    groups = list(group_specs(specs))
    assert [len(group) for group, _ in groups] == [4, 4]
    assert all([one.name for one in methods] == [one.name for one in spec().methods] for _, methods in groups)
    assert {row["method"] for row in project_all(specs) if row["workers"] == 300} == {
        one.name for one in spec().methods if one.name != "lion-cub"
    }


def test_a_method_that_says_so_sends_and_keeps_the_same_in_any_group():
    tensors = MODELS["text-gpt"].tensors
    same = [name for name in METHODS if method_of(name).same_for_any_group]
    assert len(same) > len(METHODS) / 2
    for name in same:
        method = method_of(name)
        for workers in (3, 16, 1000):
            assert method.exchanges(tensors, workers) == method.exchanges(tensors, 2)
            assert method.kept_elements(tensors, workers) == method.kept_elements(tensors, 2)
            errors = method.error_feedback_elements(tensors, 2)
            assert method.error_feedback_elements(tensors, workers) == errors


def test_many_methods_left_out_are_one_line():
    specs = variants(spec(methods=["ddp-adam", "lion-cub"]), Options(range(100, 200)))
    (line,) = left_out(specs)
    assert line.startswith(
        "lion-cub: left out for 72 numbers of workers from 128 to 199; for 128: bits: got 8; expected"
    )


def test_thresholds_are_told_where_there_are_few_rows_or_they_are_asked_for():
    few = sl.project(workers=range(4, 6), methods=["ddp-adam", "diloco"], networks=["wan"])
    assert few.rows[1]["faster"] == "always"
    without = sl.project(workers=range(4, 6), methods=["ddp-adam", "diloco"], networks=["wan"], thresholds=False)
    assert without.rows == [
        {name: value for name, value in row.items() if not name.startswith("faster")} for row in few.rows
    ]
    assert "faster" in str(few) and "faster" not in str(without)
    many = {"workers": range(1, FEW_ROWS // 2 + 2), "methods": ["ddp-adam", "diloco"], "networks": ["wan"]}
    assert "faster" not in sl.project(**many).rows[0]
    assert sl.project(**many, thresholds=True).rows[-1]["faster"] == "always"


BOUNDS_OF_FASTER = ("faster_low_bandwidth_bytes_per_s", "faster_high_bandwidth_bytes_per_s")


def test_rows_are_made_of_columns_when_they_are_asked_for(tmp_path):
    result = sl.project(workers=range(2, 5), methods=["ddp-adam", "diloco"], networks=["10gbe", "wan"])
    rows = result.record["rows"]
    assert isinstance(rows, ColumnRows) and len(rows) == 12 and rows[1:3] == result.rows[1:3]
    assert result.summary["faster_bandwidth_bytes_per_s"].isna().all()  # pandas makes objects of a list of None
    some = [name for name in rows[0] if name not in ("faster_bandwidth_bytes_per_s", *BOUNDS_OF_FASTER)]
    pd.testing.assert_frame_equal(result.summary[some], pd.DataFrame(result.rows)[some])
    assert sl.load(result.save(tmp_path / "saved")).rows == result.rows


def test_an_algorithm_for_nodes_is_refused_on_links():
    with pytest.raises(SpecError, match="algorithm: got 'hierarchical'; expected a network of nodes, or of sites"):
        project_all(variants(spec(algorithm="leader"), Options("8,16")))
