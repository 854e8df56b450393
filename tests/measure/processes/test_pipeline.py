"""Stages in processes of their own: the simulator's parameters, and a timeline that has the schedule's order."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.measure.launching.launch import PRELOAD
from syncline.measure.launching.pipeline import StageMessage, run_stage
from syncline.measure.processes.rendezvous import Place, group, host_store, join_store
from syncline.measure.processes.stopwatch import Lap, Stopwatch
from syncline.measure.processes.watchdog import NUM_COUNTERS, Progress, run_watched
from syncline.problems import Rows, TextGPT, split_into_stages
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import schedule

TEXT = TextGPT(width=8, layers=4, heads=2, context=8, batch_size=2, tied=False)
MESSAGE = StageMessage((2, 8, 8))
MICROBATCHES = 8
FREE = Link(0.0, 1e15)


def math_of(name: str, stages: int, chunks: int, weights: str) -> tuple[PipelineMath, nn.Module]:
    task, model = TEXT.build(Rows.whole_group(1, (5,))), TEXT.initial_network(5)
    made, parts = schedule(name, stages, MICROBATCHES, chunks), split_into_stages(model, stages * chunks)
    optimizers = [torch.optim.Adam([p for part in parts[k::stages] for p in part.parameters()]) for k in range(stages)]

    def loss(logits: torch.Tensor, i: int) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, -2), task.batch(i)[1].flatten())

    return PipelineMath(made, parts, lambda i: task.batch(i)[0][0], loss, optimizers, weights), model


class Played(NamedTuple):
    """What one stage's process ended with."""

    params: dict[str, torch.Tensor]
    losses: dict[int, torch.Tensor]
    delays: list[int]
    laps: list[Lap]


CASES = [
    ("1f1b", 1, "stashed"),
    ("async-1f1b", 1, "stashed"),
    ("async-1f1b", 1, "current"),
    ("async-1f1b", 1, "corrected"),
    ("gpipe", 1, "stashed"),
    ("zb-h1", 1, "stashed"),
]
OF_TWO = [*CASES, ("interleaved", 2, "stashed")]


def in_stages(stage: int, port: int, stages: int, cases: list[tuple[str, int, str]], folder: Path) -> None:
    """Play each case as one stage, and leave what it ended with; runs in each process."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    progress, out = Progress.shared(folder / "progress", stages, stage), []
    with group(join_store(port, 60.0), Place(stage, stages), "gloo", 60.0):
        for name, chunks, weights in cases:
            out.append(play(stage, stages, name, chunks, weights, progress))
        torch.distributed.barrier()
    torch.save(out, folder / f"{stage}.pt")


def play(stage: int, stages: int, name: str, chunks: int, weights: str, progress: Progress) -> Played:
    math, _ = math_of(name, stages, chunks, weights)
    watch = Stopwatch(progress)
    run_stage(math.schedule, stage, math, MESSAGE, watch)
    mine = {key: p.detach() for part in math.parts[stage::stages] for key, p in part.named_parameters()}
    return Played(mine, math.losses, math.delays[stage], watch.take_laps())


@pytest.mark.parametrize(("stages", "cases"), [(2, OF_TWO), (3, CASES[:2]), (4, CASES)])
def test_stages_in_processes_have_the_simulators_parameters(
    stages: int, cases: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    store, progress = host_store(), Progress.shared(tmp_path / "progress", stages)
    args = (store.port, stages, cases, tmp_path)
    assert run_watched(in_stages, stages, args, progress, tmp_path, 60.0, preload=PRELOAD) is None
    played = [torch.load(tmp_path / f"{stage}.pt", weights_only=False) for stage in range(stages)]
    for number, (name, chunks, weights) in enumerate(cases):
        math, model = math_of(name, stages, chunks, weights)
        run_pipeline(Pipeline(math.schedule, stages, Durations(1.0, 2.0, 1.0), effects=math.effect), FREE)
        found = {key: p for of in played for key, p in of[number].params.items()}
        expected = {key: p.detach() for key, p in model.named_parameters()}
        assert found.keys() == expected.keys()
        for key, p in expected.items():
            assert torch.equal(found[key], p), (name, key)  # the same operations in the same order on each stage
        assert played[-1][number].losses == math.losses
        assert [of[number].delays for of in played] == math.delays
        for stage, of in enumerate(played):
            check_laps(of[number].laps, math, stage)


def check_laps(laps: list[Lap], math: PipelineMath, stage: int) -> None:
    """The order of the schedule on the compute stream, an update after what completes a gradient, no overlap."""
    computed = [lap for lap in laps if lap.stream == "compute" and lap.what != "recv"]
    tasks = [(lap.what.partition(".")[0], lap.step) for lap in computed if lap.what != "optimizer"]
    assert tasks == [(task.kind, task.microbatch) for task in math.schedule.orders[stage]]
    assert sum(lap.what == "optimizer" for lap in computed) == len(math.delays[stage])
    for stream in ("compute", "send"):
        mine = [lap for lap in laps if lap.stream == stream]
        assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(mine))
    received = [lap for lap in laps if lap.what == "recv"]
    ends = (stage > 0) + (stage < math.stages - 1)
    if math.schedule.chunks == 1:
        assert len(received) == sum(lap.what == "send" for lap in laps) == ends * MICROBATCHES
    assert {lap.nbytes for lap in laps if lap.what in ("send", "recv")} == {2 * 8 * 8 * 4}


def test_an_order_that_depends_on_timing_is_refused() -> None:
    math, _ = math_of("greedy", 1, 1, "stashed")
    watch = Stopwatch(Progress(np.zeros((1, NUM_COUNTERS), dtype=np.int64)))
    with pytest.raises(SpecError, match="schedule: got 'greedy'"):
        run_stage(math.schedule, 0, math, MESSAGE, watch)
