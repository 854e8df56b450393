"""``syncline validate clusters``: what ships, files of one's own, constants without a group."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import syncline as sl
from syncline.costmodel.layouts.transformer_time import STEP_TIMES, step_s
from syncline.costmodel.measured_clusters import L40S
from syncline.costmodel.network.presets import P3
from syncline.errors import SpecError, SynclineError
from syncline.measure.validation import cluster_files
from syncline.measure.validation.cluster_files import (
    BUNDLED_FILES,
    COLLECTIVES,
    bandwidth_bytes_per_s,
    predicted_rows,
    read_table,
)
from syncline.measure.validation.measured_steps import Point, layouts
from syncline.measure.validation.residuals import FIT_STAGES, fitted_p3_constants, nvlink_left_out
from syncline.measure.validation.validate import cluster_summary
from tests.measure.validation.priced import bundled_rows, priced_rows
from tests.test_docs import documented

QUICK = ("validate", "clusters", "--set", "cross_validation=false")


@pytest.fixture(scope="module", autouse=True)
def _each_file_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_files, "predicted_rows", priced_rows)
        yield


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return bundled_rows()


def errors(rows: list[dict], *starts: str) -> np.ndarray:
    of = [row["error"] for row in rows if row["regime"].startswith(starts)]
    assert of
    return np.abs(of)


def test_rows_are_as_written_with_what_is_predicted(rows: list[dict]) -> None:
    for path in BUNDLED_FILES:
        with path.open(encoding="utf-8", newline="") as file:
            written = list(csv.DictReader(file))
        told = [row for row in rows if row["file"] == path.name]
        assert [{key: row[key] for key in written[0]} for row in told] == written
        assert all(row["predicted_ms"] > 0 for row in told)
        assert all(("predicted_mean_ms" in row) == (path.name == "l40s_steps.csv") for row in told)


def test_what_was_measured_is_told_within_the_errors_that_are_documented(rows: list[dict]) -> None:
    ring = errors(rows, "nccl all_reduce, shaped")
    assert np.median(ring) < 2e-3 and ring.max() < 5e-3
    assert np.median(errors(rows, "nccl broadcast", "nccl reduce")) < 0.04
    assert np.median(errors(rows, "gloo")) < 0.02
    assert np.median(errors(rows, "nccl in pieces")) < 0.05
    assert np.median(errors(rows, "nccl in pieces, 50 ms")) < 0.07
    assert errors(rows, "DiLoCo, local SGD, shaped").max() < 0.03
    assert errors(rows, "DDP, shaped").max() < 0.04
    mean = [row["predicted_mean_ms"] / float(row["mean_wall_ms"]) - 1 for row in rows if "mean_wall_ms" in row]
    assert np.median(np.abs(mean)) < 0.03


def test_shipped_constants_are_a_fit_to_the_shipped_rows() -> None:
    fitted = asdict(fitted_p3_constants(read_table(COLLECTIVES)[1]))
    for name, value in asdict(P3).items():
        assert fitted[name] == pytest.approx(value, rel=0.01), name
    assert {name for stage in FIT_STAGES for name in stage.constants} == set(asdict(P3))


def test_other_numbers_of_gpus_are_told_from_their_neighbours() -> None:
    assert all(row["median"] < 0.05 for row in nvlink_left_out())


def test_the_command_writes_its_folder_and_shows_it_again(command) -> None:
    done = command(*QUICK, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert len(result["rows"]) == 158 + 8 + 288 + 84 + 720 + 54 + 172
    assert (
        set(result) == {"spec", "rows", "summary", "constants", "cross_validation", "folder"}
        and result["cross_validation"] == []
    )
    own = {key for path in BUNDLED_FILES for key in read_table(path)[1][0]}
    assert {key for row in result["rows"] + result["summary"] for key in row} - own <= documented("validate clusters")
    assert "nccl all_reduce, shaped" in done.err and "l40s_steps.csv" in done.err
    assert pq.read_table("runs/clusters/points.parquet").num_rows == len(result["rows"])
    assert Path("runs/clusters/figures/validation.png").is_file()
    assert "nccl all_reduce, shaped" in command("show", "runs/clusters").err
    assert json.loads(command("validate", "runs/clusters/spec.yaml", "--json").out)["summary"] == result["summary"]


@pytest.mark.slow
def test_constants_without_a_group_are_told(command, monkeypatch) -> None:
    monkeypatch.setattr("syncline.measure.validation.residuals.GROUPS_LEFT_OUT", ("megabytes",))
    done = command("validate", "clusters", "--json")
    told = json.loads(done.out)["cross_validation"]
    assert {row["held_out"] for row in told} == {"nothing", "megabytes", "gpus"}
    ring = [row for row in told if row["stage"].startswith("NCCL all-reduce")]
    assert [row["value"] for row in ring] == ["fit", "128", "256"]
    assert all(row["median"] < 0.01 and row["worst"] < 0.02 for row in ring)
    assert "Constants fitted without a group" in done.err
    assert set(told[0]) <= documented("validate clusters")


def own(text: str, name: str = "own.csv") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


HEAD = "collective,backend,nodes,megabytes,delay_ms,gbit_s,time_ms\n"


def test_a_file_of_ones_own_is_predicted(command) -> None:
    name = own(HEAD + "all_reduce,nccl,32,128,10,1,2200\nbroadcast,gloo,8,256,default,default,\n")
    done = command("validate", "clusters", "--measurements", name, "--json")
    assert done.code == 0, done.err
    first, second = json.loads(done.out)["rows"]
    assert (first["nodes"], first["time_ms"], second["time_ms"]) == ("32", "2200", "")
    assert first["error"] == pytest.approx(first["predicted_ms"] / 2200 - 1) and second["error"] is None
    assert second["predicted_ms"] > 0


def test_a_file_without_measured_times_has_no_errors(command) -> None:
    name = own("gpu,gpus,bytes\nv100,6,1000000\n")
    done = command("validate", "clusters", "--measurements", name, "--json")
    (row,) = json.loads(done.out)["rows"]
    assert done.code == 0 and row["error"] is None and json.loads(done.out)["summary"] == []
    assert not Path("runs/clusters/figures").exists() or not list(Path("runs/clusters/figures").iterdir())


STEPS = "algorithm,bw,bw_measured,steps,n_sync,params,batch,seq,sync_wall_ms\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "all_reduce,nccl,four,128,10,1,2\n", "own.csv, line 2: nodes: got 'four'"),
        (HEAD + "all_reduce,nccl,4,128,-1,1,2\n", "line 2: delay_ms: got '-1'"),
        (HEAD + "all_reduce,nccl,4,128,1,1,nan\n", "line 2: time_ms: got 'nan'"),
        (HEAD + "all_reduce,mpi,4,128,1,1,3\n", "line 2: backend: got 'mpi'"),
        (HEAD + "scan,gloo,4,128,1,1,3\n", "line 2: collective: got 'scan'"),
        (HEAD + "all_reduce,nccl,4\n", "line 2: fewer or more columns"),
        (HEAD, "has no row"),
        ("a,b\n1,2\n", "expected a file whose header has the columns collective, backend"),
        ("gpu,gpus,bytes,in_place_ns\nh100,4,10,10\n", "line 2: gpu: got 'h100'"),
        ("gpu,gpus,bytes,in_place_ns\na100,1,10,10\n", "line 2: gpus: got 1"),
        (STEPS + "ddp,fast,,10,10,1e6,4,512,10\n", "line 2: bw: got 'fast'"),
        (STEPS + "fsdp,1g,,10,10,1e6,4,512,10\n", "line 2: algorithm: got 'fsdp'"),
        (STEPS + "ddp,1g,,10,11,1e6,4,512,10\n", "line 2: n_sync: got 11"),
    ],
)
def test_mistakes_are_one_line(text: str, said: str, command) -> None:
    done = command(*QUICK, "--measurements", own(text))
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1, done.err
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected a CSV file"):
        predicted_rows(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SynclineError, match="a file that can be read"):
        predicted_rows(binary)


def test_other_specs_take_no_measurements(command) -> None:
    done = command("validate", "vtrain-a100", "--measurements", own(HEAD))
    assert done.code == 2 and "measurements" in done.err


def test_algorithms_and_rates_may_be_written_otherwise(command) -> None:
    same = [("localsgd", "1g"), ("local-SGD", "1G"), ("Local_SGD", "1000m")]
    rows = [f"{algorithm},{rate},,10,10,30846720,4,512,1500\n" for algorithm, rate in same]
    first, *others = predicted_rows(Path(own(STEPS + "".join(rows))))
    assert all(row["predicted_ms"] == first["predicted_ms"] for row in others)


def test_a_first_synchronisation_is_told_apart(command) -> None:
    name = own(STEPS + "diloco,1g,,200,1,30846720,4,512,9000\n")
    (row,) = predicted_rows(Path(name)) if Path(name).is_file() else ()
    assert row["regime"] == "a first synchronisation, without its warm-up"
    assert cluster_summary([row])[0]["regime"] == row["regime"]


GPTS = "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline parallelism"  # noqa: E501


def test_steps_of_gpts_are_predicted_with_the_constants_that_ship(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(f"{GPTS},iteration time (ms)\n2,16,1,1024,16,12,1024,1,1,2,409.8\n2,16,1,1024,16,12,1024,1,2,1,\n")
    piped, plain = predicted_rows(file)
    assert piped["regime"] == plain["regime"] == "A100, one node, no tensor parallelism"
    assert abs(piped["error"]) < 0.03 and plain["error"] is None
    one = [Point(2, 16, 1, 1024, 16, 12, 1024, 1, 1, 2, 0.4098)]
    assert piped["predicted_ms"] == 1e3 * step_s(layouts(one), STEP_TIMES["a100-megatron-deepspeed"])[0]


def test_activations_of_a_table_are_computed_again_if_those_of_one_training_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    small = "64,64,1,4096,32,32,2048,8,8,1"
    file.write_text(f"{GPTS}\n{small}\n")
    (alone,) = predicted_rows(file)
    file.write_text(f"{GPTS}\n{small}\n512,1536,2,12288,96,96,2048,2,8,32\n")
    beside, _ = predicted_rows(file)
    assert beside["regime"] == "A100, several nodes, tensor parallelism"
    assert 1.2 < beside["predicted_ms"] / alone["predicted_ms"] < 4 / 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2,16,1,1024,16,12,1024,1,0,2", "data parallelism: got '0'; expected a number, at least 1"),
        ("2,1,2,1024,16,12,1024,1,1,2", "global batch: got 1; expected a micro-batch at least for each replica"),
        ("2,16,1,1024,16,1,1024,1,1,2", "layers: got 1; expected a layer at least for each stage"),
    ],
)
def test_a_step_that_cannot_be_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(f"{GPTS}\n{line}\n")
    with pytest.raises(SynclineError, match=f"line 2: .*{said}"):
        predicted_rows(file)


PRESETS = {"nccl": ("p3.2xlarge", "bandwidth"), "gloo": ("p3.2xlarge-gloo", "upload")}
"""The preset that users name for each library, and the field that describes a shaped rate."""

COMPOSITES = ("send", "+")
"""What ``collectives`` does not serve: a message between two, and several calls in a row."""


def test_what_is_validated_is_what_users_get(rows: list[dict]) -> None:
    """Every collective of the shipped measurements is predicted as by ``collectives`` on the machines' preset."""
    compared = set()
    for row in (row for row in rows if row["file"] == COLLECTIVES.name):
        if row["regime"].startswith("nccl in pieces") or any(part in row["collective"] for part in COMPOSITES):
            continue
        preset, rate = PRESETS[row["backend"]]
        link: dict = {"preset": preset}
        if row["delay_ms"] != "default":
            link |= {"latency": f"{row['delay_ms']} ms"}
        if row["gbit_s"] != "default":
            link |= {rate: f"{row['gbit_s']} Gbit/s"}
        megabytes = f"{row['megabytes']} MiB"
        answer = sl.collectives(
            workers=int(row["nodes"]), nbytes=megabytes, networks=[link], collectives=[row["collective"]],
            algorithms=[row["backend"]],
        )  # fmt: skip
        (told,) = answer.rows
        assert 1e3 * told["closed_form_s"] == pytest.approx(row["predicted_ms"], rel=1e-12)
        compared.add((row["backend"], row["collective"]))
    nodes = {"a100": "dgx-a100", "v100": "nvlink2"}
    for row in [row for row in rows if row["file"] == "nvlink_all_reduce.csv"]:
        (told,) = sl.collectives(
            workers=int(row["gpus"]), nbytes=float(row["bytes"]), networks=[nodes[row["gpu"]]],
            collectives=["all_reduce"], algorithms=["auto"],
        ).rows  # fmt: skip
        assert told["algorithm"] == "measured"
        assert 1e3 * told["closed_form_s"] == pytest.approx(row["predicted_ms"], rel=1e-12)
    assert compared == {(backend, kind) for backend in PRESETS for kind in ("all_reduce", "broadcast", "reduce")}


def test_steps_have_the_collectives_that_users_get(rows: list[dict]) -> None:
    """Every step of DDP and DiLoCo has an all-reduce, and DDP's a broadcast, as ``collectives`` has them on the preset.

    Computing, the update, and the calls of an all-reduce per tensor are the machines' own.
    """
    steps = [row for row in rows if row["file"] == "l40s_steps.csv"]
    assert len(steps) == 8
    for row in steps:
        link: dict = {"preset": "g6e.2xlarge"}
        if row["bw"] != "unshaped":
            rate = bandwidth_bytes_per_s(row["bw"])
            queue = {"connections": 16, "mss": 8949, "queue": 50e-3 * rate + 32_768, "slow_start": False}
            payload = float(row["bw_measured"]) / 8 if row["bw_measured"] else rate * 8949 / 9015
            link |= {"bandwidth": f"{8 * payload * 9015 / 8949!r} bit/s", "tcp": queue}
        scale = float(row["params"]) * float(row["batch"]) * float(row["seq"]) / L40S.reference_work

        def seconds(kind: str, nbytes: float, link: dict = link) -> float:
            (told,) = sl.collectives(
                workers=4, nbytes=nbytes, networks=[link], collectives=[kind], algorithms=["nccl"]
            ).rows
            return told["closed_form_s"]

        ring_s = seconds("all_reduce", 4 * float(row["params"]))
        expected_s = L40S.compute_s * scale + L40S.call_s + ring_s
        if row["algorithm"] == "ddp":
            computing_s = (L40S.ddp_compute_s + L40S.ddp_update_s) * scale
            exposed_s = max(ring_s - L40S.ddp_compute_s * scale * 2 / 3, 0.0)
            expected_s = computing_s + exposed_s + seconds("broadcast", L40S.buffers_bytes)
        assert row["predicted_ms"] == pytest.approx(1e3 * expected_s, rel=1e-12)
