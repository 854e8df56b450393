"""Papers' numbers beside ours, on the command line."""

from __future__ import annotations

import json


def test_rows_come_as_tables_and_as_json(command):
    shown, told = command("reproduce", "curvadion"), command("reproduce", "curvadion", "--json")
    assert (shown.code, shown.out, told.code, told.err) == (0, "", 0, "")
    rows = json.loads(told.out)["rows"]
    assert {row["paper"] for row in rows} == {"curvadion"}
    differ = [row for row in rows if row["verdict"] == "differ"]
    assert all(f"docs/{row['finding']}" in shown.err.replace("\n", "") for row in differ)
    assert "checkable" in shown.err


def test_another_paper_is_refused_in_a_line(command):
    done = command("reproduce", "dmeo")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected one of" in done.err and "did you mean 'demo'" in done.err
