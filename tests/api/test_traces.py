"""Traces from Python: functions of a process whose torch has computed, with methods of ours in them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import syncline as sl
from syncline.measure.recording.record import RankRecord, Started, Stepped
from syncline.measure.recording.record_files import read_record

METHODS = ("MTDAO", "DeMo", "PowerSGD", "DDP")
STEPS = 4


def training_of(folder: Path) -> object:
    """A function that trains with methods of ours, and leaves their ledgers."""

    def train() -> None:
        import torch
        import torch.distributed as dist

        from syncline import methods

        dist.init_process_group("gloo")
        for name, more in (("MTDAO", {"period": 2}), ("DeMo", {}), ("PowerSGD", {}), ("DDP", {})):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
            optimizer = getattr(methods, name)(model.parameters(), lr=0.003, **more)
            torch.manual_seed(dist.get_rank())
            for _ in range(STEPS):
                x = torch.randn(16, 24)
                loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            calls = [(call.step, call.collective, call.payload_bytes) for call in optimizer.comm.ledger.records]
            if not dist.get_rank():
                (folder / f"{name}.json").write_text(json.dumps(calls))
        print("trained by", dist.get_rank())

    return train


def calls_of(rank: RankRecord) -> list[tuple[int, str, float]]:
    step, calls = 0, []
    for event in rank.events:
        if isinstance(event, Stepped):
            step += 1
        elif isinstance(event, Started) and len(event.ranks) > 1:
            calls.append((step, event.kind, event.payload_bytes))
    return calls


def test_methods_of_ours_are_recorded_as_their_ledgers_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(2)
    assert torch.isfinite(torch.randn(600, 600) @ torch.randn(600, 600)).all()  # by threads of this process
    result = sl.trace(training_of(tmp_path), workers=2, networks=["10gbe", sl.Link("20 ms", "1 Gbit/s", name="dsl")])
    assert capsys.readouterr().err.count("trained by") == 2
    ranks = read_record(result.folder)
    got = calls_of(ranks[0])
    expected = []
    for number, name in enumerate(METHODS):
        for step, kind, nbytes in json.loads((tmp_path / f"{name}.json").read_text()):
            expected.append((number * STEPS + step, kind, nbytes))

    assert got == expected
    assert [row["network"] for row in result.rows] == ["10gbe", "dsl"]
    assert result.rows[1]["step_time_s"] > result.rows[0]["step_time_s"] > 0
    payload = pq.read_table(result.folder / "ledger.parquet", columns=["payload_bytes"])["payload_bytes"]
    assert sum(payload.to_pylist()) == sum(nbytes for _, _, nbytes in expected)
    assert result.curves["bytes"].max() == sum(nbytes for _, _, nbytes in expected)
    assert {row["site"].rpartition(":")[0] for row in result.json()["sites"]} == {__file__}
    assert sl.load(result.save(tmp_path / "kept")).rows == result.rows
    assert "what decides a step" in str(sl.whatif(result, networks="wan"))


def fails() -> None:
    raise ValueError("this function has had enough")


@pytest.mark.slow
def test_a_rank_that_fails_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(sl.SynclineError, match="exited with code 1"):
        sl.trace(fails, workers=2)
    assert "ValueError: this function has had enough" in capsys.readouterr().err
