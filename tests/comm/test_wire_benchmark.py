"""The benchmark of the wire formats runs, on a tensor of one block, and its formats do what they say."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import wire


def test_rows_of_a_tiny_run(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        wire.main(["--size", "100", "--threads", "1", "--device", "cpu", "--rounds", "1", "--json"])
    finally:
        torch.set_num_threads(threads)
    rows = {row["format"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {name: row["bits_per_value"] for name, row in rows.items()} == {
        "copy": 32, "bf16": 16, "fp16": 16, "packed signs": 1,
        "2-bit integers": 2, "4-bit integers": 4, "5-bit integers": 683 * 32 / 4096, "8-bit integers": 8,
        "sparse pairs": 32 * 32 / 4096, "sparse pairs, selected": 32 * 32 / 4096,
    }  # fmt: skip
    assert all(row["held_gb_per_s"] > 0 and row["new_gb_per_s"] > 0 for row in rows.values())
    assert rows["copy"]["held_over_copy"] == rows["copy"]["new_over_copy"] == 1


def test_what_arrives() -> None:
    x = torch.linspace(-1.0, 1.0, wire.BLOCK)
    arrived = {f.name: torch.as_tensor(f.decode(f.encode(), torch.empty_like(x))).view_as(x) for f in wire.formats(x)}
    assert torch.equal(arrived["copy"], x)
    assert torch.equal(arrived["packed signs"], x.sign())
    assert arrived["4-bit integers"].unique().tolist() == list(range(16))
    kept = arrived["sparse pairs, selected"]
    assert int((kept != 0).sum()) == wire.KEPT
    torch.testing.assert_close(kept[kept != 0], x[kept != 0], rtol=2**-8, atol=0)
    assert float(kept[kept != 0].abs().min()) > float(x[kept == 0].abs().max()) * (1 - 2**-8)
