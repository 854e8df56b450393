"""Arms side by side are the trainings of the methods they stand for; triggers and placements have equal counts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from replication.when import __main__ as command
from replication.when.arms import Arm, ArmsMethod, CholeskyDion
from replication.when.figure import when_figure
from replication.when.results import (
    Cell,
    decide,
    equal_workers,
    finals,
    gain,
    losses,
    noise,
    outcome,
    over_even,
    stored_trainings,
    table,
)
from replication.when.setting import threshold_for, values_of, when_setting
from syncline.comm import SimulatedCommunicator
from syncline.methods import CurvaDion, PlacedDion
from syncline.methods.dion import placed_steps
from syncline.optim import DionRule
from syncline.optim.schedules import warmup_stable_decay
from syncline.problems import TextGPT
from syncline.training import parameter_groups, rows_of, train

STEPS, RATE, OTHER = 24, 0.01, 0.0025


@pytest.fixture
def problem(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(np.random.default_rng(0).integers(97, 110, 20_000, dtype=np.uint8)))
    return TextGPT(width=16, layers=1, batch_size=4, validation_windows=8, context=16, heads=2, path=str(text))


def trained(problem, make, seeds):
    comm = SimulatedCommunicator(4, len(seeds))
    task = problem.build(rows_of(comm, seeds))
    method = make(parameter_groups(task), comm)
    schedule = warmup_stable_decay(method, STEPS, 4, 6)
    return train(task, method, seeds, STEPS, schedule=schedule), method


def test_arms_are_the_methods_that_they_stand_for(problem):
    """An even schedule and a trigger, side by side with another seed and another rate."""
    even = placed_steps(5, STEPS, "even")
    arms = [Arm("even", 3, RATE, even), Arm("trigger", 3, RATE, threshold=0.5), Arm("early", 4, 2 * RATE, (0, 1))]
    found, method = trained(
        problem, lambda groups, comm: ArmsMethod(groups, arms, STEPS, other_lr_share=0.25, comm=comm), (3, 3, 4)
    )
    shared = {"lr": RATE, "other_lr": OTHER, "worker_axis": True}
    placed, _ = trained(
        problem, lambda groups, comm: PlacedDion(groups, num_averages=5, steps=STEPS, comm=comm, **shared), (3,)
    )
    triggered, curvadion = trained(
        problem, lambda groups, comm: CurvaDion(groups, threshold=0.5, comm=comm, **shared), (3,)
    )
    ends = found.last_evaluation()["loss"]
    assert ends[0] == pytest.approx(placed.last_evaluation()["loss"][0], rel=1e-4)
    assert ends[1] == pytest.approx(triggered.last_evaluation()["loss"][0], rel=1e-4)
    fired = torch.stack(method.fired)
    assert fired[:, 0].nonzero().flatten().tolist() == list(even)
    assert fired[:, 1].tolist() == triggered.trace["averaged"][:, 0].astype(bool).tolist()
    assert 1 < fired[:, 1].sum() < STEPS  # it fires in some steps
    largest, mean = method.values(torch.stack(method.changes))
    torch.testing.assert_close(largest[:, 1], torch.cat(curvadion.trigger.compared), rtol=1e-3, atol=1e-4)
    assert (mean[1:] < largest[1:]).all()


def test_workers_that_average_parameters_are_equal_afterwards(problem):
    arms = [Arm("early", 0, RATE, (STEPS - 1,)), Arm("early", 0, RATE, (STEPS - 2,))]
    _, method = trained(
        problem,
        lambda groups, comm: ArmsMethod(groups, arms, STEPS, other_lr_share=0.25, form="parameters", comm=comm),
        (0, 0),
    )
    by_arm = [p.detach().unflatten(0, (2, 4)) for group in method.param_groups for p in group["params"]]
    for p in by_arm:
        torch.testing.assert_close(p[0], p[0, :1].expand_as(p[0]))
    assert any((p[1] != p[1, :1]).any() for p in by_arm)


@pytest.mark.parametrize("rank", [16, 2])
def test_cholesky_gives_dions_direction(rank):
    """Also of a momentum of rank 2, whose products have nearly dependent columns."""
    source = torch.Generator().manual_seed(0)
    g = torch.randn(3, 24, rank, generator=source) @ torch.randn(3, rank, 16, generator=source)
    directions = []
    for rule in (DionRule(), CholeskyDion()):
        state = rule.init(torch.zeros(3, 24, 16), 0)
        for t in range(3):
            direction = rule.direction(g, state, {"betas": (0.95,)}, t)
        directions.append(direction)
    if rank == 16:
        torch.testing.assert_close(*directions, rtol=1e-3, atol=1e-5)
    assert torch.isfinite(directions[1]).all()
    assert directions[1].norm() == pytest.approx(float(directions[0].norm()), rel=0.2)


def test_variances_of_what_workers_share_and_of_their_own():
    """Shared deviation 2, own deviation 1, three layers, 4,000 steps: five deviations of the estimate."""
    source = torch.Generator().manual_seed(0)
    changes = 2 * torch.randn(4000, 1, 3, generator=source) + torch.randn(4000, 4, 3, generator=source)
    changes[:10], changes[101:103] = 100.0, -100.0  # the start, and two steps after an average
    shared, noise_variance = command.variances(changes.double(), [100], settled_from=10)
    assert shared == pytest.approx(12, rel=5 * (2 / 12_000) ** 0.5)
    assert noise_variance == pytest.approx(3, rel=5 * (2 / 36_000) ** 0.5)
    assert command.variances(changes.double(), list(range(4000)), settled_from=10) == (None, None)


TINY = {
    "problem": {"width": 16, "layers": 1, "heads": 2, "context": 16, "validation_windows": 8},
    "steps": 24, "warmup_steps": 2, "cooldown_steps": 6, "settled_from": 3, "search_count": 4, "counts": [2, 6],
    "seeds": [[0], [1]], "tokens": [128, 256], "rates": [0.004, 0.016],
}  # fmt: skip


@pytest.fixture
def tiny(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "when_setting", lambda scale: {**when_setting(scale), **TINY})
    lines = tmp_path / "lines.jsonl"
    return lines, ["--text", problem.path, "--lines", str(lines)]


def test_placements_have_the_triggers_counts_and_a_stop_repeats_nothing(tiny):
    lines, arguments = tiny
    command.main([*arguments, "--for", "10min", "--tokens", "128", "--side-by-side", "512"])
    whole = [json.loads(line) for line in lines.read_text().splitlines()]
    found = {(x["form"], x["stage"], x["arm"], x["follows"], x["seed"], x["lr"], x["count"]): x for x in whole}
    assert len(found) == len(whole) == 12 + 2 * 13
    for line in whole:
        if line["stage"] == "finals" and line["follows"]:
            (triggered,) = [
                x for x in whole
                if (x["form"], x["seed"], x["stage"], x["arm"], x["count"])
                == (line["form"], line["seed"], "finals", line["follows"], line["count"])
            ]  # fmt: skip
            assert len(line["averaged"]) == max(len(triggered["averaged"]), 1)
    searched = [x for x in whole if x["stage"] == "search" and x["form"] == "gradients"]
    best = min((x for x in searched if x["arm"] == "trigger"), key=lambda x: x["losses"][-1][1])
    finals_of = [x for x in whole if (x["form"], x["stage"], x["arm"]) == ("gradients", "finals", "trigger")]
    for x in finals_of:
        assert x["lr"] == best["lr"]
        assert x["threshold"] == threshold_for(values_of(best, "trigger"), x["count"])
    lines.write_text("".join(json.dumps(line) + "\n" for line in whole[:50]))
    command.main([*arguments, "--for", "10min", "--tokens", "128"])
    again = [json.loads(line) for line in lines.read_text().splitlines()]
    assert again[:50] == whole[:50]
    assert len(again) == len(whole)
    assert [x["averaged"] for x in again] == [x["averaged"] for x in whole]


def row(arm, seed, loss, count, follows="", **values):
    even = {"values": np.array([0.5, 0.4, 0.1, 0.2]), "shared_variance": 1.0, "noise_variance": 3.0}
    return {
        "form": "gradients", "stage": "finals", "tokens": 8, "arm": arm, "follows": follows, "seed": seed,
        "count": count, "loss": loss, **even, **values,
    }  # fmt: skip


def rows_of_seed(seed, trigger, even, tokens=8):
    """Losses of the trigger and of the even schedule at 2 and 6 averages; other placements end .05 above even."""
    rows = [row("every", seed, 1.0, 24)]
    for count, t, e in zip((2, 6), trigger, even, strict=True):
        rows += [row("trigger", seed, t, count), row("mean-trigger", seed, t, count)]
        rows += [row("even", seed, e, count, "trigger"), row("even", seed, e, count, "mean-trigger")]
        rows += [row("early", seed, e + 0.05, count, "trigger"), row("random", seed, e + 0.05, count, "trigger")]
    return [{**r, "tokens": tokens} for r in rows]


def seeds(*ends):
    """The rows of one seed per pair of trigger's and even losses."""
    return pd.DataFrame([r for seed, (trigger, even) in enumerate(ends) for r in rows_of_seed(seed, trigger, even)])


def test_the_rule():
    two = [((2.0, 1.9), (2.2, 2.1)), ((2.1, 1.8), (2.2, 2.05))]
    decision = decide(seeds(*two, two[0]), "gradients", 8, (2, 6))
    assert decision.outcomes == ("below", "below")
    assert decision.gain == pytest.approx(0.1)
    assert decision.trigger == pytest.approx((-0.2, -0.2))
    assert decision.spreads == pytest.approx((0.25, 0.25))
    assert (decision.thesis, decision.placement) == ("holds", "yes")
    assert decide(seeds(*two), "gradients", 8, (2, 6)).thesis == "open"  # two seeds
    late = seeds(*[((2.0, 2.2), (2.2, 2.1))] * 3)
    assert decide(late, "gradients", 8, (2, 6)).thesis == "fails"
    slight = seeds(*[((2.15, 1.95), (2.2, 2.0))] * 3)  # .05 below, while 6 averages gain .2
    assert decide(slight, "gradients", 8, (2, 6))[:2] == ("fails", "no")
    assert outcome(pd.Series([-0.019] * 3)) == "equal"
    assert outcome(pd.Series([0.03, 0.05, 0.04])) == "above"


def test_only_whole_seeds_count_and_a_divergence_is_above_all():
    ends = [((2.0, 1.9), (np.nan, 2.1))] * 3 + [((2.1, 1.8), (2.2, 2.0))]
    whole = finals(seeds(*ends)[:-1])
    assert set(whole["seed"]) == {0, 1, 2}
    assert losses(whole, Cell("gradients", 8, 2), "even")[0] == np.inf
    assert outcome(over_even(whole, Cell("gradients", 8, 2), "trigger")) == "below"
    assert gain(whole, "gradients", 8, (2, 6))[0] == np.inf


def test_shares_of_noise_and_a_threshold_over_batches():
    frame = pd.DataFrame(rows_of_seed(0, (2.0, 1.9), (2.2, 2.1)) + rows_of_seed(0, (2.0, 1.9), (2.2, 2.1), tokens=16))
    larger = (frame["tokens"] == 16) & (frame["arm"] == "even")
    frame.loc[larger, "noise_variance"] = 1.0
    frame["values"] = [
        np.array([0.5, 0.1, 0.3, 0.1]) if is_larger else v for is_larger, v in zip(larger, frame["values"], strict=True)
    ]
    found = noise(frame, "gradients", (8, 16), (2, 2))
    assert found[8].share == 0.25
    assert found[16].share == 0.5
    assert found[8].deviation == pytest.approx(3**0.5)
    assert (found[8].exceeded, found[16].exceeded) == (2, 2)  # above .2


def test_the_table_has_a_row_per_training(tiny):
    lines, arguments = tiny
    command.main([*arguments, "--for", "10min", "--tokens", "128"])
    frame = table([lines])
    assert len(frame) == len(lines.read_text().splitlines())
    assert set(finals(frame)["seed"]) == {0, 1}
    assert decide(finals(frame), "gradients", 128, (2, 6)).seeds == 2


def test_workers_that_always_average_differ_by_their_batches_alone(tiny):
    lines, arguments = tiny
    command.main([*arguments, "--equal-workers", "24", "--tokens", "128", "256"])
    frame = table([lines])
    assert set(frame["stage"]) == {"equal"}
    assert not len(finals(frame))
    by_batch = equal_workers(frame)
    assert list(by_batch) == [128, 256]
    assert all(deviation > 0 and share < 1 for deviation, share in by_batch.values())


def test_the_figure_shows_every_seed_and_medians_of_three():
    figure = when_figure(stored_trainings(), when_setting("gpu"))
    first = figure.axes[0]
    seeds_of_trigger, medians_of_trigger = first.lines[0], first.lines[1]
    assert (len(seeds_of_trigger.get_xdata()), len(medians_of_trigger.get_xdata())) == (14, 3)
