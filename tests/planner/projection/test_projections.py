"""Many projections at once, and the bandwidths at which a method is worth it."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncline as sl
from syncline.errors import SpecError
from syncline.files import write_csv
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import project, project_all
from syncline.planner.projection.projections import (
    Options,
    left_out,
    variants,
)
from syncline.planner.projection.thresholds import HIGHEST, LOWEST, WHEN, speedups, thresholds
from syncline.specs import ProjectSpec, load_spec


def spec(*overrides):
    return load_spec("project-gpt-160m", ["methods=[ddp-adam, diloco, demo]", "networks=[10gbe]", *overrides],
                     ProjectSpec)  # fmt: skip


def lines(*terms):
    """Speedups of a method over the first one, where steps take ``a + b / B`` seconds: of each pair of terms."""

    def told(picked, bandwidths):
        (a0, b0), each = terms[0], np.array(terms[1:])[picked]
        return (a0 + b0 / bandwidths) / (each[:, :1] + each[:, 1:] / bandwidths)

    return told


def threshold(terms, ratio):
    found = thresholds(lines(*terms), len(terms) - 1, {"it": ratio})["it"]
    return [(WHEN[when], rate) for when, rate in zip(found.when, found.bytes_per_s, strict=True)]


def test_a_batch_gives_each_group_that_computes_a_sequence_at_least_one_and_says_so() -> None:
    asked = {"model": "gpt-160m", "networks": "10gbe", "methods": "ddp-adam", "thresholds": False}
    for more, worker_tokens in (
        ({"workers": 64}, 1024),
        ({"workers": 64, "layout": "pipeline=4"}, 256),
        ({"workers": 6, "layout": "data=2,pipeline=3"}, 342),
    ):
        told = sl.project(**asked, **more, batch_tokens=1000)
        assert told.rows[0]["tokens_per_worker"] == worker_tokens
        (batch,) = (line for line in told.json()["assumptions"] if line["name"] == "batch")
        assert batch["origin"] == "the nearest to 1,000 in whole sequences"
    told = sl.project(**asked, workers=4, batch_tokens=2**17)
    assert [line["origin"] for line in told.json()["assumptions"] if line["name"] == "batch"] == ["given"]


fixed_s, nbytes = st.floats(0.01, 10), st.floats(1e4, 1e9)


@given(a0=fixed_s, b0=nbytes, a1=fixed_s, b1=nbytes, ratio=st.sampled_from([1.0, 1.05, 2.0]))
def test_the_threshold_of_two_hyperbolas_is_found(a0, b0, a1, b1, ratio):
    """``(a0 + b0 / B) = r (a1 + b1 / B)`` at ``B = (b0 - r b1) / (r a1 - a0)``."""
    ((when, bytes_per_s),) = threshold([(a0, b0), (a1, b1)], ratio)
    above, below = ratio * a1 - a0, b0 - ratio * b1
    meets = below / above if above else np.inf
    if meets > 0 and 2 * LOWEST < meets < HIGHEST / 2:
        # Where the two hyperbolas are one to the last digits, the place where they meet is not told apart.
        assert when == ("below" if below > 0 else "above") or abs(below) < 1e-9 * b0
        if when in ("below", "above") and abs(above) > 1e-6 * a0:
            assert bytes_per_s == pytest.approx(meets, rel=1e-4)
    elif not LOWEST / 2 < meets < HIGHEST * 2:
        assert when in ("always", "never") and np.isnan(bytes_per_s)


def test_what_is_never_and_always_faster():
    same = [(1.0, 1.0), (1.0, 1.0), (0.5, 0.5)]
    assert [when for when, _ in threshold(same, 1.0)] == ["never", "always"]
    assert [when for when, _ in threshold(same, 1.05)] == ["never", "always"]


@pytest.mark.parametrize("fields", [(), ("overlap=ddp",), ("algorithm=auto",), ("algorithm=auto", "overlap=ddp")])
def test_at_the_threshold_the_speedup_is_the_one_that_was_asked_for(fields):
    given_spec = spec(*fields)
    plan = ProjectionPlan([given_spec])
    for row, number in zip(project(given_spec)[1:], (1, 2), strict=True):
        bandwidth = row["faster_by_5_percent_bandwidth_bytes_per_s"]
        assert row["faster_by_5_percent"] == "below"
        (there,) = speedups(plan, number, given_spec.networks[0], np.array([bandwidth]))
        assert there == pytest.approx(1.05, rel=1e-5)
        again = project(spec(*fields, f"networks=[{{latency: 50 us, bandwidth: {bandwidth}}}]"))[number]
        assert again["speedup"] == pytest.approx(1.05, rel=1e-5)


def test_prices_of_many_bandwidths_are_those_of_each():
    for algorithm in ("auto", "gloo", "nccl", "ring"):
        one = spec(f"algorithm={algorithm}")
        plan, link, many = ProjectionPlan([one]), one.networks[0], np.geomspace(1e6, 1e12, 5)
        alone = [speedups(plan, 1, link, np.array([bandwidth]))[0] for bandwidth in many]
        assert speedups(plan, 1, link, many) == pytest.approx(alone, rel=1e-12)


def test_rows_are_those_of_every_combination():
    options = Options("8,64", ["gpt-160m,olmo-1b"], ["h100", "a100"], ["ddp-adam,diloco"], "ddp", "auto")
    specs = variants(spec(), options)
    rows = project_all(specs)
    assert len(rows) == 2 * 2 * 2 * 2
    assert {(row["model"], row["hardware"], row["workers"], row["method"]) for row in rows} == {
        (model, machine, workers, method)
        for model in ("gpt-160m", "olmo-1b")
        for machine in ("h100", "a100")
        for workers in (8, 64)
        for method in ("ddp-adam", "diloco")
    }
    assert {row["overlap"] for row in rows} == {"ddp"}
    by_hand = spec("model=olmo-1b", "workers=64", "compute.hardware=a100", "overlap=ddp",
                   "methods=[ddp-adam, {kind: diloco, lr: 0.003, period: 30}]",
                   "algorithm=auto")  # fmt: skip
    assert project(by_hand) == rows[-2:]


def test_without_options_it_is_the_spec():
    assert variants(spec(), Options()) == [spec()]


def test_hardware_replaces_measured_seconds():
    (one,) = variants(spec("compute={seconds: 5 s}"), Options(hardware=["v100"]))
    assert one.compute.seconds is None and project(one)[0]["hardware"] == "v100"


def test_a_method_that_cannot_serve_so_many_is_left_out_of_a_sweep_and_said():
    specs = variants(spec(), Options("8,4096", methods=["ddp-adam,lion-cub"]))
    assert [[method.name for method in one.methods] for one in specs] == [["ddp-adam", "lion-cub"], ["ddp-adam"]]
    (line,) = left_out(specs)
    assert line.startswith("lion-cub: left out for 4,096 workers: bits: got 8; expected at least 14")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (Options("8,0"), "--workers: got '8,0'; expected whole numbers"),
        (Options("8,x"), "--workers: got '8,x'; expected whole numbers"),
        (Options("9" * 5000), "--workers: got '999"),
        (Options(period="9" * 5000), "--period: got '999"),
        (Options(models=["gpt"]), "--model: got 'gpt'; expected one of"),
        (Options(hardware=["h10"]), "--hardware: got 'h10'; expected one of"),
        (Options(methods=["ddp-adam,adam"]), "--method: got 'adam'; expected one of"),
        (Options(overlap="all"), "--overlap: got 'all'; expected one of 'async', 'ddp', 'none'"),
        (Options(algorithm="rng"), "--algorithm: got 'rng'; expected one of"),
    ],
)
def test_mistakes_name_the_option(options, error):
    with pytest.raises(SpecError) as refused:
        variants(spec(), options)
    assert str(refused.value).startswith(error)


def test_a_table_of_a_paper_takes_no_sweep():
    with pytest.raises(SpecError, match=r"^--workers: got '8'; expected no such option for a speed-table"):
        variants(load_spec("lion-cub-table4"), Options("8"))


def test_what_has_no_closed_form_on_a_network_is_said():
    nodes = "networks=[{per_node: 2, inside: nvlink4, between: ib-ndr, name: cluster}]"
    ddp, diloco = project(spec(nodes, "methods=[ddp-adam, diloco]"))
    assert ddp["algorithm"] == "nccl-nvlink" and (diloco["faster"], ddp["faster"]) == (None, None)
    rows = project(spec(nodes))
    assert [row["timed_by"] for row in rows] == ["closed form"] * 3


def test_rows_as_a_csv_file(tmp_path):
    rows = project_all([spec()])
    with write_csv(rows, tmp_path / "new" / "rows.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["method"] for row in read] == ["ddp-adam", "diloco", "demo"]
    assert list(read[0]) == list(rows[0]) and float(read[1]["speedup"]) == rows[1]["speedup"]
    assert read[0]["faster"] == ""
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"^--csv: got"):
        write_csv(rows, tmp_path / "file" / "rows.csv")


def test_figures_are_drawn_or_refused(tmp_path):
    assert sl.project([spec()]).save_plot(tmp_path / "speedup.svg").stat().st_size
    assert sl.project([load_spec("lion-cub-fig2")]).save_plot(tmp_path / "votes.svg").stat().st_size
    short = load_spec("mt-dao-fig10", ["bandwidths=[1 Gbit/s, 100 Gbit/s]"])
    assert sl.project([short]).save_plot(tmp_path / "time.svg").stat().st_size
    for specs, file, error in [
        ([spec()], "speedup.doc", "a name that ends in .pdf, .svg or .png"),
        ([load_spec("lion-cub-table4")], "table.pdf", "no figure, as a speed-table is a table"),
        ([spec("methods=[ddp-adam]")], "one.pdf", "two methods"),
        ([spec("methods=[ddp-adam, diloco]", "networks=[{per_node: 2, inside: nvlink4, between: ib-ndr}]")], "n.pdf",
         "one link for all workers"),
    ]:  # fmt: skip
        with pytest.raises(SpecError, match=error):
            sl.project(specs).save_plot(tmp_path / file)
