"""One process of a launched pipeline: a stage, its stopwatch, and its file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional as F

from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.files import atomic_path
from syncline.measure.launching.process import Launch, meet
from syncline.measure.processes.pipeline import StageMessage, play_stage
from syncline.measure.processes.progress import Progress
from syncline.measure.processes.rendezvous import Place, clock_offset_ns, group, join_store
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.problems import Rows, cut
from syncline.runs.training.delayed_gradients.pipeline_training import stage_optimizer
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.specs import PipelineSpec

if TYPE_CHECKING:
    from torch import Tensor, nn


class Stages:
    """The model of a pipeline spec in parts, with an optimizer for each stage: for one schedule, over all its repeats.

    Args:
        spec: a spec with a training.
        schedule: name of one of its schedules.
        device: device of the parts.
    """

    def __init__(self, spec: PipelineSpec, schedule: str, device: torch.device | str = "cpu") -> None:
        assert spec.training is not None
        problem, self._seed = spec.training.problem, spec.training.seed
        self.schedule = spec.build_schedule(schedule)
        self.task = problem.build(Rows.whole_group(1, (self._seed,)), device=device)
        self.model = problem.weighted(self._seed).to(device)
        self.parts: list[nn.Module] = cut(self.model, spec.stages * self.schedule.chunks)
        every = self.schedule.updates == "every"
        delays = stage_delays(spec.stages).tolist() if every else [0] * spec.stages
        owned = [torch.nn.ModuleList(self.parts[k :: spec.stages]) for k in range(spec.stages)]
        names = {id(p): name for name, p in self.model.named_parameters()}
        self.optimizers = [
            stage_optimizer(
                spec.training.method, self.task, [(names[id(p)], p) for p in part.parameters()], k, delays, self._seed
            )
            for k, part in enumerate(owned)
        ]
        self.message = StageMessage((problem.batch_size, problem.context, problem.width))

    def math(self, number: int) -> PipelineMath:
        """Return the math of one repeat, which continues where the previous repeat ended."""
        first = number * self.schedule.microbatches

        def inputs(i: int) -> Tensor:
            return self.task.batch(first + i)[0][0]

        def loss(logits: Tensor, i: int) -> Tensor:
            return F.cross_entropy(logits.flatten(0, -2), self.task.batch(first + i)[1][0].flatten())

        return PipelineMath(self.schedule, self.parts, inputs, loss, self.optimizers)


def stage_process(rank: int, fields: dict[str, Any], options: Launch, port: int, folder: Path) -> None:
    """Run the process of ``syncline launch`` for one stage."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    spec = PipelineSpec.model_validate(fields)
    store, place = join_store(port, options.meeting_s), Place(rank, spec.stages, rank, spec.stages)
    machines = meet(spec, options, store, place)
    mine = options.devices(spec.stages)
    device = mine.for_process(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    progress = Progress.shared(folder / "progress", spec.stages, rank)
    with group(store, place, "gloo", 1.5 * options.timeout_s + 10.0), (folder / f"{rank}.jsonl").open("a") as file:
        offset_ns = clock_offset_ns(place, machines)
        watch = Stopwatch(progress, device)
        for name in spec.schedules:
            stages = Stages(spec, name, device)
            for number in range(spec.training.repeats if spec.training else 0):
                math = stages.math(number)
                dist.barrier()  # repeats begin together, so that each has its own timeline
                play_stage(stages.schedule, rank, math, stages.message, watch)
                losses = {i: float(loss) for i, loss in math.losses.items()}
                line = {"schedule": name, "repeat": number, "laps": watch.take_laps(), "losses": losses}
                file.write(json.dumps(line | {"offset_ns": offset_ns}) + "\n")
                file.flush()
            if options.keep_parameters:
                mine_only = torch.nn.ModuleList(stages.parts[rank :: spec.stages])
                names = {id(p): key for key, p in stages.model.named_parameters()}
                parameters = {names[id(p)]: p.detach().cpu() for p in mine_only.parameters()}
                with atomic_path(folder / f"{name}.{rank}.pt") as working:
                    torch.save(parameters, working)
        dist.barrier()
