"""``syncline goodput`` and ``sl.goodput``: rows, tables, refusals in one line."""

from __future__ import annotations

import json

import pytest

import syncline as sl
from syncline.costmodel.failures import FAILURE_RATES


def test_the_command_prints_the_rows_of_the_function(command):
    done = command(
        "goodput", "--workers", "64,512", "--restart", "5min", "--checkpoint", "30s", "--seeds", "2", "--json"
    )
    rows = sl.goodput(workers=[64, 512], restart="5 min", checkpoint={"write_time": 30}, seeds=2).rows
    assert json.loads(done.out)["rows"] == rows
    assert [row["workers"] for row in rows] == [64, 512]
    assert rows[0]["mtbf_s"] == pytest.approx(8 * rows[1]["mtbf_s"])


def test_simulation_and_formula_agree_over_many_seeds() -> None:
    fields = {"checkpoint": {"write_time": 60}, "restart": "10 min", "timeout": "1 min", "spares": 1000}
    (row,) = sl.goodput("500 h", 1000, steps=5000, seeds=40, **fields).rows
    assert row["goodput"] == pytest.approx(row["expected_goodput"], rel=0.02)
    assert row["interval_s"] == pytest.approx(row["best_interval_s"], abs=5)
    shares = [row[f"{name}_share"] for name in ("useful", "lost", "checkpoint", "restart", "down")]
    assert sum(shares) == pytest.approx(1) and row["goodput"] == row["useful_share"]


def test_what_costs_more_is_told_to_cost_more() -> None:
    def of(**fields):
        (row,) = sl.goodput(
            "2000 h", 1000, **{"repair": 0, "restart": "5 min", "checkpoint": {"write_time": 30}} | fields
        ).rows
        return row["goodput"]

    base = of()
    assert of(restart="10 min") < base and of(checkpoint={"write_time": 90}) < base and of(timeout="5 min") < base
    assert of(repair="1 h") < of(repair="1 h", spares=10) == base
    assert of(checkpoint={"write_time": 30, "mode": "asynchronous"}) > base
    assert of(checkpoint={"size": "3 TB", "bandwidth": "100 GB/s"}) == base
    assert of(checkpoint={"write_time": 30, "restore_time": "10 min"}) < base
    assert of(checkpoint={"write_time": 30, "interval": "never"}) < 0.01


def test_a_formula_holds_with_spares_only_if_they_always_suffice() -> None:
    """Some six machines are in repair at a time, so a single spare is as good as none."""
    for recovery in ("restart", "elastic"):
        fields = {"repair": "6 h", "restart": "5 min", "recovery": recovery, "checkpoint": {"write_time": 30}}
        (few,) = sl.goodput("1000 h", 1000, spares=1, **fields).rows
        (many,) = sl.goodput("1000 h", 1000, spares=30, **fields).rows
        assert few["expected_goodput"] is None and few["goodput"] < many["goodput"] - 0.003
        assert many["expected_goodput"] == pytest.approx(many["goodput"], rel=0.02)


def test_who_goes_on_without_the_others_loses_less() -> None:
    fields = {
        "repair": "1 h",
        "restart": "5 min",
        "timeout": "1 min",
        "regroup_time": "30 s",
        "checkpoint": {"write_time": 30},
    }
    rows = sl.goodput("llama-3", 4096, recovery=["restart", "elastic", "alone"], **fields).rows
    goodputs = [row["goodput"] for row in rows]
    assert goodputs == sorted(goodputs) and goodputs[0] < 0.97 < goodputs[1] < goodputs[2]
    assert len({row["interruptions"] for row in rows}) == 1  # the same failures


def test_a_few_who_go_on_save_for_when_nobody_is_there() -> None:
    """Four who are away for a tenth of the time each are all away once in some hundred hours."""
    machines = {
        "recovery": "elastic",
        "restart": "5 min",
        "timeout": "1 min",
        "repair": "1 h",
        "checkpoint": {"write_time": 30},
    }
    rows = sl.goodput("10 h", 4, interval=["best", "10 min", "20 h", "never"], seeds=3, **machines).rows
    best, often, seldom, never = rows
    assert often["interval_s"] < best["interval_s"] < seldom["interval_s"] and never["interval_s"] is None
    assert best["best_interval_low_s"] < best["interval_s"] < best["best_interval_high_s"]
    assert best["expected_goodput"] > max(row["expected_goodput"] for row in (often, seldom, never))
    assert best["goodput"] == pytest.approx(best["expected_goodput"], rel=0.02)


def test_a_node_fails_as_one() -> None:
    (node,) = sl.goodput("meta-rsc-1", 4096).rows
    assert node["mtbf_s"] == pytest.approx(FAILURE_RATES["meta-rsc-1"].rates[0].mtbf_s / 512)


def test_a_file_and_a_trace(tmp_path, command):
    (tmp_path / "log.csv").write_text("start,end,worker,node\n3600,7200,,1\n2 h,,5,\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("{outages: log.csv, workers_per_node: 4, recovery: elastic}", encoding="utf-8")
    done = command("goodput", "--failures", "mine.yaml", "--workers", "8", "--for", "10 h", "--json")
    (row,) = json.loads(done.out)["rows"]
    assert row["interruptions"] == 2
    assert row["down_share"] == pytest.approx((4 * 3600 + 8 * 3600) / (8 * 36000), rel=0.01)


def test_no_progress_is_told(command):
    done = command("goodput", "--failures", "{outages: [{site: 1}], sites: 2}", "--workers", "4")
    assert done.code == 0 and "no progress possible since 0 s: 2 of 4 places stay empty" in " ".join(done.err.split())
    gone = {"outages": [{"worker": 1, "start": "10 d"}]}
    for limit, goodput in (({"duration": "30 d"}, 1 / 3), ({"steps": 10**6}, 0)):  # the others wait until the end
        (row,) = sl.goodput(gone, 4, **limit).rows
        assert (row["goodput"], row["down_share"]) == (pytest.approx(goodput), pytest.approx(1 - goodput))
    (row,) = sl.goodput("1 min", 4, restart="3 h", repair=0).rows
    assert "no progress possible since" in row["stuck"] and row["goodput"] < 0.01


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"failures": "lama-3"}, r"failures.rates: got 'lama-3'; expected one of .*did you mean 'llama-3'"),
        ({"failures": {"rates": [{"mtbf": 0}]}}, r"failures.rates.0.mtbf: got 0"),
        ({"failures": {"outages": [{"worker": 9}]}, "workers": 8}, "failures.outages.0"),
        ({"failures": {"outages": [{"worker": 1, "node": 2}]}}, "one of worker, node and site"),
        (
            {"failures": {"outages": [{"worker": 1, "start": 5, "end": 3}]}},
            r"end: got 3.0; expected a time after",
        ),
        ({"workers_per_node": 2048}, "failures.workers_per_node: got 2048; expected at most 1024, the workers"),
        (
            {"checkpoint": {"write_time": 1, "size": "1 GB"}},
            "failures.checkpoint.write_time: got 1.0; expected none with",
        ),
        ({"checkpoint": {"size": "1 GB"}}, "failures.checkpoint.bandwidth: got None; expected a rate"),
        ({"recovery": "wait"}, "recovery: got 'wait'; expected one of 'alone', 'elastic', 'restart'"),
        ({"repair": "1 h", "repair_time": "2 h"}, "repair: got '1 h'; expected none with repair_time, which sets it"),
        ({"interval": "0 s"}, "interval: got '0 s'; expected a positive time, best, or never"),
        ({"workers": 0}, "workers: got 0; expected a whole number from 1"),
    ],
)
def test_refusals_name_field_value_and_what_would_do(fields, said):
    with pytest.raises(sl.SpecError, match=said):
        sl.goodput(**fields)
