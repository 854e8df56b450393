"""Logs that people have: what each format says, what it is predicted as, the network that it makes, what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from syncline.cli.application import app, spread_values
from syncline.costmodel import Link, Matrix, TwoLevel, chosen_algorithm, collective_s
from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.collectives.table import ALGORITHMS as ANY_NETWORK
from syncline.costmodel.collectives.table import OF_GLOO, OF_NCCL, default_algorithm
from syncline.errors import SpecError, SynclineError
from syncline.measure.calibration.from_logs import calibrate_from_logs
from syncline.measure.calibration.stream_law import StreamLaw, lines_by_ends
from syncline.measure.logs import Logged, read_log
from syncline.measure.validation.cluster_files import predicted_files
from syncline.specs import network
from tests.reference import REFERENCE, needs_reference

EXAMPLES = Path(__file__).parent / "examples"
STREAMS = [EXAMPLES / f"us_to_eu.{count}.json" for count in (1, 10, 80)]


def test_nccl_tests() -> None:
    rows = read_log(EXAMPLES / "all_reduce_perf.log")
    assert [row.line for row in rows] == list(range(19, 25))
    assert rows[2].value == pytest.approx(92.4e-6)
    assert rows[2].setting == {
        "kind": "all_reduce", "workers": 8, "nodes": 1, "nbytes": 8388608.0, "gpu": "NVIDIA H200"
    }  # fmt: skip
    assert {(row.setting["workers"], row.setting["nodes"]) for row in read_log(EXAMPLES / "two_nodes.log")} == {(16, 2)}


def test_bandwidths_of_small_sizes_that_nccl_tests_rounds_to_0_are_no_errors(tmp_path: Path) -> None:
    log, row = (
        tmp_path / "all_reduce_perf.log",
        "       32768          8192     float     sum      -1    35.10    0.93    1.63",
    )
    text = (EXAMPLES / log.name).read_text()
    assert row in text
    log.write_text(text.replace(row, "           8             2     float     sum      -1    34.81    0.00    0.00"))
    small = read_log(log)[0]
    assert (small.value, small.setting["nbytes"]) == (pytest.approx(34.81e-6), 8.0)


def test_sizes_of_gathers_are_those_of_the_result(tmp_path: Path) -> None:
    log = tmp_path / "all_gather_perf.log"
    log.write_text((EXAMPLES / "all_reduce_perf.log").read_text().replace("all_reduce_perf", "all_gather_perf"))
    assert read_log(log)[0].setting["nbytes"] == 32768 / 8


def test_deepspeeds_benchmarks() -> None:
    rows = read_log(EXAMPLES / "ds_bench.txt")
    assert [(row.setting["kind"], row.setting["nbytes"]) for row in rows[-2:]] == [
        ("all_reduce", 2.0**28), ("all_gather", 2.0**21)
    ]  # fmt: skip
    assert rows[0].value == pytest.approx(160.48e-6, rel=1e-3)


def test_lines_between_places() -> None:
    rates = [row for file in STREAMS for row in read_log(file)]
    assert [row.setting["streams"] for row in rates] == [1, 10, 80]
    assert {(row.setting["source"], row.setting["target"]) for row in rates} == {("us", "eu")}
    assert [row.setting["rtt_s"] for row in rates] == pytest.approx([0.1031] * 3)
    (ping,) = read_log(EXAMPLES / "us_to_eu.txt")
    assert (ping.quantity, ping.value, ping.line) == ("round trip", pytest.approx(0.1031), 7)
    table = read_log(EXAMPLES / "regions.csv")
    assert [row.quantity for row in table] == ["round trip", "rate"] * 3


@needs_reference
def test_a_row_of_iperf_gives_the_window_and_the_others_follow_within_2_percent() -> None:
    with (REFERENCE / "wan" / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith("hmc-iperf-gc-eu-us-")]
    logged = [
        Logged("rate", float(row["value"]) * 125e6, {
            "source": "eu", "target": "us", "streams": int(row["id"].rpartition("-")[2]),
            "rtt_s": float(row["rtt_ms"]) / 1e3,
        }, Path("rows.csv"), number)
        for number, row in enumerate(rows, start=2)
    ]  # fmt: skip
    law = StreamLaw.from_line(lines_by_ends(logged)["eu", "us"])
    assert law.window_bytes == pytest.approx(2.7e6, rel=0.01)
    errors = [law.rate_bytes_per_s(row.setting["streams"]) / row.value - 1 for row in logged]
    assert len(errors) == 6 and np.abs(errors).max() < 0.02
    assert law.is_capped and 0.96 < law.bounds.low <= 1 <= law.bounds.high < 1.04


def test_without_a_cap_the_largest_rate_stands_for_it() -> None:
    line = lines_by_ends([row for file in STREAMS[:2] for row in read_log(file)])["us", "eu"]
    law = StreamLaw.from_line(line)
    assert not law.is_capped and law.cap_bytes_per_s == pytest.approx(2.086e9 / 8)


def test_a_network_from_a_log_predicts_the_log_within_its_bounds(tmp_path: Path) -> None:
    """The file's network and bounds are what the table says, and they hold only for what was measured."""
    answer = calibrate_from_logs([str(EXAMPLES / "ds_bench.txt")], tmp_path / "mine.yaml")
    joined = network(answer["file"])
    assert isinstance(joined, Link) and joined.bounds is not None
    for row in answer["rows"]:
        kind, workers, nbytes = row["collective"], row["workers"], row["nbytes"]
        algorithm = chosen_algorithm("auto", kind, workers, nbytes, joined)
        assert float(collective_s(kind, workers, nbytes, joined, algorithm)) == pytest.approx(
            row["predicted_s"], rel=1e-3
        )
        assert abs(row["error"]) < 0.1
        assert communication_uncertainty(joined, algorithm, workers, nbytes) is joined.bounds
    assert communication_uncertainty(joined, None, 64).reasons == ("64 workers where 4 were measured",)
    assert yaml.safe_load(Path(answer["file"]).read_text())["measured"]["logs"] == [str(EXAMPLES / "ds_bench.txt")]


ALGORITHMS = [(kind, name) for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
              for name in ("auto", "gloo", "nccl", *ANY_NETWORK[kind], *OF_GLOO[kind], *OF_NCCL[kind])]  # fmt: skip


@pytest.mark.parametrize(("kind", "algorithm"), ALGORITHMS)
def test_a_known_link_is_found_again(kind: str, algorithm: str, tmp_path: Path) -> None:
    """A log of times by an algorithm gives back the link, and the link gives back the times."""
    log, link = tmp_path / "ds.txt", Link(40e-6, 2.5e9)
    lines = [f"---- Performance of {kind} on 16 devices ----"]
    for count in (1 << 8, 1 << 14, 1 << 20, 1 << 26):
        name = chosen_algorithm(algorithm, kind, 16, 4.0 * count, link)
        seconds = float(collective_s(kind, 16, 4.0 * count, link, name))
        lines.append(f"{4 * count}  {count}x4  {1e6 * seconds:.4f}  1.0  1.0")
    log.write_text("\n".join(lines) + "\n")
    answer = calibrate_from_logs([str(log)], tmp_path / "found.yaml", algorithm=algorithm)
    found = network(answer["file"])
    assert (found.latency_s, found.bandwidth_bytes_per_s) == pytest.approx((40e-6, 2.5e9), rel=1e-3)
    assert all(abs(row["error"]) < 1e-3 for row in answer["rows"])
    assert default_algorithm(kind, found) == (OF_GLOO[kind] if algorithm == "gloo" else ANY_NETWORK[kind])[0]


def test_only_settings_that_count_go_with_logs() -> None:
    log = str(EXAMPLES / "ds_bench.txt")
    for options in (["--sizes", "4 MB"], ["--workers", "8"], ["--set", "seed=1"], ["--network", "10gbe"]):
        run = CliRunner().invoke(app, ["calibrate", "--from", log, *options])
        assert "expected none with --from, which measures nothing" in str(run.exception)
    for words in (["--algorithm", "ring"], ["--from", str(STREAMS[0]), "--algorithm", "ring"]):
        run = CliRunner().invoke(app, ["calibrate", *words])
        assert "--algorithm: got 'ring'; expected none" in str(run.exception)


def test_nodes_of_a_log_have_nvlink_inside(tmp_path: Path) -> None:
    joined = network(calibrate_from_logs([str(EXAMPLES / "two_nodes.log")], tmp_path / "two.yaml")["file"])
    assert isinstance(joined, TwoLevel) and joined.per_node == 8 and joined.inner.nvlink.generation == 3
    assert joined.outer.bounds is not None
    assert communication_uncertainty(joined, "auto", 16, 2**24) is joined.outer.bounds


def test_lines_become_a_matrix_with_the_window(tmp_path: Path) -> None:
    out = tmp_path / "lines.yaml"
    command = ["calibrate", "--from", *map(str, STREAMS), "-o", str(out)]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    lines = network(str(out))
    assert isinstance(lines, Matrix) and lines.places == ("us", "eu")
    (line, back) = lines.lines[0][1], lines.lines[1][0]
    assert line.latency_s == pytest.approx(0.1031 / 2) and line.bandwidth_bytes_per_s == pytest.approx(
        0.21e9 / 8, rel=1e-4
    )
    assert back.bandwidth_bytes_per_s == line.bandwidth_bytes_per_s
    fields = yaml.safe_load(out.read_text())["network"]
    for connections, rate in ((10, 2.1e9), (80, 6.198e9)):
        fields["tcp"]["connections"] = connections
        assert network(fields).lines[0][1].bandwidth_bytes_per_s == pytest.approx(rate / 8, rel=1e-3)
    reasons = communication_uncertainty(lines, None, 2).reasons
    assert reasons == ("streams over network 'lines' were measured, no library's collectives",)


def test_predictions_of_logs() -> None:
    rows = predicted_files([*STREAMS, EXAMPLES / "all_reduce_perf.log", EXAMPLES / "trainings.csv"])
    assert [row["regime"] for row in rows if "streams" in row] == ["streams from us to eu"] * 3
    errors = [row["error"] for row in rows if "streams" in row]
    assert errors[0] is None and np.abs(errors[1:]).max() < 0.02
    collectives = [row for row in rows if row["regime"] == "all_reduce, 8 workers, dgx-h200"]
    assert len(collectives) == 6 and all(row["low_ms"] < row["predicted_ms"] < row["high_ms"] for row in collectives)
    trainings = [row for row in rows if "micro_batch" in row]
    assert [row["gpus"] for row in trainings] == ["8", "64"]
    # 512 sequences of 2,048 tokens at 3,100 tokens/s on each of 8 GPUs
    step_ms = 1e3 * 512 * 2048 / (3100 * 8)
    assert trainings[0]["predicted_ms"] / (1 + trainings[0]["error"]) == pytest.approx(step_ms)


def test_a_network_for_a_logs_collectives() -> None:
    with pytest.raises(SynclineError, match=r"ds_bench.txt, line 4: gpu: got ''; expected --cluster"):
        predicted_files([EXAMPLES / "ds_bench.txt"])
    rows = predicted_files([EXAMPLES / "ds_bench.txt"], Link(30e-6, 1.2e9, "mine"))
    assert len(rows) == 5 and {row["regime"] for row in rows} == {
        "all_reduce, 4 workers, mine", "all_gather, 4 workers, mine"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("all_reduce_perf.log", ("  58.00", "   oops"), r"line 20: time: got 'oops'; expected a positive number"),
        ("all_reduce_perf.log", ("#  Rank", "#  Was"), r"line 19: no lines '# Rank"),
        ("ds_bench.txt", ("4096x4", "4096xfloat"), r"line 4: expected size, ELEMENTSxBYTES"),
        (
            "us_to_eu.1.json",
            ('"bits_per_second"', '"bits"'),
            r"expected JSON of iperf3 -J, which has 'bits_per_second'",
        ),
        ("us_to_eu.1.json", ('"num_streams": 1', '"num_streams": '), r"line \d+: expected JSON of iperf3"),
        ("us_to_eu.txt", ("rtt min", "lost min"), r"line 1: ping of 10.1.0.2 has no line 'rtt"),
        ("regions.csv", ("0.134", "fast"), r"line 3: gbit_s: got 'fast'; expected a positive number"),
        ("trainings.csv", ("h100,64", "h100,-64"), r"line 3: gpus: got '-64'"),
    ],
)
def test_errors_name_file_and_line(name: str, change: tuple[str, str], said: str, tmp_path: Path) -> None:
    wrong = tmp_path / name
    wrong.write_text((EXAMPLES / name).read_text().replace(*change))
    with pytest.raises(SynclineError, match=said) as error:
        predicted_files([wrong])
    assert name in str(error.value)


def test_an_iperf_that_failed(tmp_path: Path) -> None:
    wrong = tmp_path / "a_to_b.json"
    wrong.write_text(json.dumps({"start": {}, "end": {}, "error": "unable to connect to server"}))
    with pytest.raises(SynclineError, match=r"a_to_b\.json: iperf3 failed: unable to connect to server"):
        read_log(wrong)


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        (["regions.csv", "ds_bench.txt"], "but not both"),
        (["us_to_eu.txt"], "no rate between two places"),
        (["trainings.csv"], "JSON of iperf3"),
        (["nothing.log"], "a file that can be read"),
    ],
)
def test_logs_that_make_no_network(logs: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        calibrate_from_logs([str(EXAMPLES / name) for name in logs], tmp_path / "no.yaml")
    assert not (tmp_path / "no.yaml").exists()


def test_a_line_without_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text("from,to,gbit_s\nus,eu,0.2\n")
    with pytest.raises(SynclineError, match="line 2: no round trip from us to eu: add the output of ping"):
        calibrate_from_logs([str(tmp_path / "regions.csv")], tmp_path / "no.yaml")


def test_options_that_take_several_values() -> None:
    given = ["--from", "a", "b", "--json", "c", "--from=d", "--out", "e", "f"]
    assert spread_values(given, {"--from"}) == [
        "--from",
        "a",
        "--from",
        "b",
        "--json",
        "c",
        "--from=d",
        "--out",
        "e",
        "f",
    ]
