"""The command: a record there and back, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.errors import SpecError
from syncline.measure.recording.record import Computed, CountedOperation, RankRecord, Started, Stepped, Waited
from syncline.measure.recording.record_files import read_record, record_tables


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = Started(1, "all_reduce", "barrier", 4, (0, 1), ("0", 0), "train.py:7")
    ranks = [
        RankRecord([Computed(0), call, Waited(1), Stepped()], [(CountedOperation(1e9, 2.0),)], segment_cpu_s=[0.5])
    ] * 2
    (tmp_path / "record").mkdir()
    for name, parts in record_tables(ranks).items():
        pq.write_table(pa.concat_tables(parts), tmp_path / "record" / f"{name}.parquet")
    run = CliRunner().invoke(app, ["chakra", "export", "record", "--json"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert [(row["rank"], row["nodes"]) for row in told["rows"]] == [(0, 3), (1, 3)]
    assert told["folder"] == "runs/record-chakra"
    run = CliRunner().invoke(app, ["chakra", "import", told["folder"], "--out", "back", "--json"])
    assert [row["events"] for row in json.loads(run.stdout)["rows"]] == [4, 4]
    (one, _), (back, _) = ranks, read_record(tmp_path / "back")
    assert back.segments == one.segments and back.segment_cpu_s == one.segment_cpu_s
    assert [type(event) for event in back.events] == [type(event) for event in one.events]
    assert back.events[1]._replace(call=1) == one.events[1]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"action: got 'exprt'; .*did you mean 'export'"):
        CliRunner().invoke(app, ["chakra", "exprt", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(SpecError, match="a folder of Chakra execution traces"):
        CliRunner().invoke(app, ["chakra", "import", str(tmp_path)], catch_exceptions=False)
    with pytest.raises(SpecError, match="the folder of a trace"):
        CliRunner().invoke(app, ["chakra", "export", str(tmp_path)], catch_exceptions=False)
