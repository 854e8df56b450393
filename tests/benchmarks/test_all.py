"""The command that runs every benchmark again: what counts as worse, what is kept, what a benchmark prints."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as every
from benchmarks import network
from benchmarks.__main__ import Figure, keep, main, readable, table, together, worse


def test_a_ratio_is_larger_where_it_is_better():
    assert Figure("rate", 6.0, "1/s", 2.0).ratio == 3.0
    assert Figure("time", 6.0, "s", 2.0, more_is_better=False).ratio == pytest.approx(1 / 3)


def test_what_is_worse_than_before_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(every, "KEPT", tmp_path / "kept.json")
    times = {"a": 2.0, "b": 2.0}
    monkeypatch.setattr(every, "PARTS", {"one": lambda: (Figure(n, t, "s", 1.0, False) for n, t in times.items())})
    assert main(["--only", "one", "--keep"]) == 0
    assert json.loads((tmp_path / "kept.json").read_text())["figures"]["a"] == KEPT_A
    times["b"] = 2.4  # within a fifth: 1 / 1.2 is 0.83
    assert main(["--only", "one"]) == 0
    times["b"] = 2.6
    assert main(["--only", "one"]) == 1
    out, err = capsys.readouterr()
    assert "more than 20% worse than before: b" in err and "worse than before: a" not in err
    assert "| b | 2.6 s | 0.385 |  | 0.5 (-23%) |" in out


KEPT_A = {"value": 2.0, "unit": "s", "ratio": 0.5, "spread": None}


def test_of_several_runs_the_middle_one_is_told():
    runs = [[Figure("a", value, "1/s", 2.0), Figure("b", 5.0, "s", 1.0, False)] for value in (6.0, 2.0, 4.0)]
    a, b = together(runs)
    assert (a.value, a.ratio, a.spread) == (4.0, 2.0, 1.0) and b.spread == 0
    assert together(runs[:1]) == runs[0]
    assert "| a | 4 1/s | 2 | 100% |" in table([a, b], {})


def test_large_numbers_are_written_out():
    values = 2_512_345.0, 1000.0, 999.4, 0.01234
    assert [readable(value) for value in values] == ["2,510,000", "1,000", "999", "0.0123"]


def test_parts_that_were_not_run_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(every, "KEPT", tmp_path / "kept.json")
    keep([Figure("new", 1.0, "s", 1.0)], {"old": {"value": 3.0, "unit": "s", "ratio": 3.0}}, 1.0)
    assert list(json.loads((tmp_path / "kept.json").read_text())["figures"]) == ["old", "new"]
    assert worse([Figure("new", 1.0, "s", 1.0)], {}) == [] and table([], {}).count("\n") == 1


def test_rows_of_networks_are_one_json_object(monkeypatch, capsys):
    monkeypatch.setattr(network, "WORKERS", 8)
    monkeypatch.setattr(network, "EACH", 2)
    network.main(["--quick", "--repeats", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    algorithms = {"ring", "rabenseifner", "tree", "double-binary-tree", "server-naive", "server-efficient"}
    assert {row["case"] for row in rows} == algorithms | {"shared-link", "shared-link-programs"}
    assert {row["evaluator"] for row in rows} == {"events", "lockstep"}
    messages = {row["case"]: row["messages"] for row in rows}
    assert messages["ring"] == 2 * 8 * 7 and messages["tree"] == 2 * 7 and messages["shared-link"] == 128
    assert all(row["cpu_s"] >= 0 and row["workers"] in (8, 64, 128) for row in rows)


def test_a_part_that_there_is_not(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--only", "networks"])
    assert ended.value.code == 2 and "--only: got 'networks'; expected one of" in capsys.readouterr().err
