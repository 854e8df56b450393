"""MT-DAO's 16M network, its tokens, and the command that trains it within a time."""

from __future__ import annotations

import json
import math

import pytest
import torch

from replication.mt_dao_16m import __main__ as command
from replication.mt_dao_16m import corpus, network
from replication.mt_dao_16m.corpus import TokenWindows, token_windows
from replication.mt_dao_16m.network import PeriNormGPT
from syncline.costmodel.compute.models import MODELS


def small_network():
    torch.manual_seed(0)
    return PeriNormGPT(vocabulary=50, width=16, layers=2, heads=2)


def test_the_network_has_the_parameters_of_table_2():
    with torch.device("meta"):
        counted = {name: p.numel() for name, p in PeriNormGPT().named_parameters()}
    norms = sum(count for name, count in counted.items() if "norm" in name)
    assert norms == (4 * 4 + 1) * 256
    assert sum(counted.values()) - norms == pytest.approx(MODELS["mt-dao-16m"].parameters, rel=0.01)
    assert sum(counted.values()) == pytest.approx(16e6, rel=0.01)


def test_rotations_keep_norms_and_see_distances_alone():
    queries, keys = torch.randn(2, 1, 8, dtype=torch.float64).expand(2, 40, 8)
    rotated_queries, rotated_keys = network.rotated(queries), network.rotated(keys)
    assert torch.allclose(rotated_queries.norm(dim=-1), queries.norm(dim=-1))
    scores = rotated_queries @ rotated_keys.T
    for distance in (0, 3, 11):
        along = scores.diagonal(-distance)
        assert torch.allclose(along, along[:1].expand_as(along), atol=1e-6)
    assert torch.equal(rotated_queries[0], queries[0])  # position 0


def test_a_block_looks_at_no_later_token():
    block = small_network().blocks[0]
    x = torch.randn(1, 10, 16)
    y = x.clone()
    y[:, 6:] += 1
    first, second = (network.block_output(z, 2, *block.parameters()) for z in (x, y))
    assert torch.allclose(first[:, :6], second[:, :6]) and not torch.allclose(first[:, 6:], second[:, 6:])


def test_without_the_norms_behind_its_parts_a_network_is_its_embedding():
    module = small_network()
    windows = torch.randint(50, (3, 9))
    assert module(windows).item() == pytest.approx(math.log(50), abs=0.1)
    for block in module.blocks:
        torch.nn.init.zeros_(block.attended_norm.weight)
        torch.nn.init.zeros_(block.output_norm.weight)
    alone = network.output_loss(module.token(windows[:, :-1]), module.norm.weight, module.token.weight, windows[:, 1:])
    assert torch.allclose(module(windows), alone)


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def encode_batch(self, texts):
        return [type("Encoding", (), {"ids": list(text.encode())}) for text in texts]


def test_windows_are_consecutive_and_held_out_files_are_others(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_tokenizer", lambda texts, vocabulary: Bytes())
    for number in range(200):
        (tmp_path / f"{number}.py").write_text(f"x_{number:03} = {number}\n" * 5)
    (tmp_path / "copy.py").write_text((tmp_path / "7.py").read_text())
    windows = token_windows([tmp_path], 16, 256, 5)
    assert windows.facts["files"] == 200 and windows.validation.shape == (5, 17)
    assert torch.equal(windows.train[:-1, -1], windows.train[1:, 0])  # a target is the next window's first input
    assert len(windows.train) == (windows.facts["train_tokens"] - 1) // 16
    text = bytes(windows.train[:, :-1].flatten().tolist()).decode()
    held_out = [n for n in range(200) if f"x_{n:03} = " not in text]
    assert 5 <= len(held_out) <= 40
    assert all(
        f"x_{n:03}" not in bytes(row).decode()
        for row in windows.validation.tolist()
        for n in range(200)
        if n not in held_out
    )


def test_steps_fit_into_the_time():
    steps = command.affordable_steps(1000.0, 4, 0.2, 5.0)
    assert steps % command.PERIOD == 0
    assert steps * 0.2 + 5 <= command.MARGIN * 1000 / 4 < (steps + command.PERIOD) * 0.2 + 5
    assert command.affordable_steps(10.0, 4, 0.2, 5.0) < command.PERIOD


def test_methods_have_the_printed_values():
    specs = command.methods(133)
    assert specs["mt-dao"]["omegas"] == [0.95] and specs["mt-dao"]["lr"] == 2 * specs["local-adam"]["lr"] == 2e-3
    assert {specs[name]["period"] for name in ("mt-dao", "local-adam", "diloco")} == {32}


def test_the_command_writes_each_training_and_none_without_time(tmp_path, monkeypatch, capsys):
    tokens = torch.randint(300, (80, 17), dtype=torch.int32)
    monkeypatch.setattr(command, "windows_of", lambda options: TokenWindows(tokens, tokens[:4], {"files": 1}))
    monkeypatch.setattr(command, "step_seconds", lambda *arguments: (0.01, 0.1))
    words = ["--text", str(tmp_path), "--tiny", "--device", "cpu", "--methods", "mt-dao,ddp-adam", "--steps", "32"]
    assert command.main([*words, "--for", "10min", "--out", str(tmp_path / "runs")]) == 0
    runs = [json.loads(line) for line in (tmp_path / "runs" / "runs.jsonl").read_text().splitlines()]
    assert [run["method"] for run in runs] == ["mt-dao", "ddp-adam"]
    for run in runs:
        steps, losses = zip(*run["losses"], strict=True)
        assert steps == tuple(range(0, 33, 2)) and losses[-1] < losses[0] == pytest.approx(math.log(300), rel=0.05)
    assert runs[0]["losses"][0] == runs[1]["losses"][0]
    assert runs[0]["settings"]["switch_step"] == runs[0]["warmup_steps"] == 5
    assert json.loads((tmp_path / "runs" / "setting.json").read_text())["tokens_per_step"] == 8 * 16
    assert command.main([*words, "--for", "0.1 s", "--out", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none" / "runs.jsonl").exists()


def test_a_step_is_timed_without_what_comes_with_a_training(monkeypatch):
    monkeypatch.setattr(command, "train_network", lambda problem, name, steps, *rest: {"seconds": 3.0 + 0.25 * steps})
    assert command.step_seconds(None, 0, "cpu") == pytest.approx((0.25, 3.0))
