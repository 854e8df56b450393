"""Pipeline schedules: in which order each stage runs its forwards, backwards and weight gradients.

A schedule is data: a list of tasks per stage. How long tasks take, and when their inputs arrive, is somebody else's.
Stages count from 0; the one before the last is K - 2. With v chunks, stage k holds the parts k, K + k, 2 K + k, ... of
the model, so micro-batches pass all stages v times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from syncline.errors import SpecError, one_of

Kind = Literal["forward", "backward", "weight"]
"""Forward; backward (the whole of it, or in a split one the gradient of the input); gradient of the weights."""
TASK_KINDS: tuple[Kind, ...] = ("forward", "backward", "weight")


class PipelineTask(NamedTuple):
    """One micro-batch through one chunk of one stage, one way."""

    kind: Kind
    microbatch: int
    chunk: int = 0


Order = list[PipelineTask]
"""What a stage runs, first to last."""


class Schedule(NamedTuple):
    """How the stages of a pipeline take turns.

    Attributes:
        name: how the field calls it.
        orders: per stage, from the first to the last; empty for one whose order depends on timing.
        microbatches: M.
        chunks: v, parts of the model per stage.
        splits_backward: whether weight gradients are tasks of their own.
        updates: ``flush``: one update after the last micro-batch; ``every``: one per micro-batch, at once.
        limits: per stage, the most micro-batches that may be between forward and backward; only where the order
            depends on timing.
    """

    name: str
    orders: list[Order]
    microbatches: int
    chunks: int = 1
    splits_backward: bool = False
    updates: Literal["flush", "every"] = "flush"
    limits: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What each micro-batch passes at each stage, in this order."""
        return TASK_KINDS if self.splits_backward else TASK_KINDS[:2]

    @property
    def released_by(self) -> Kind:
        """The last of them, after which an activation is not needed any more."""
        return self.kinds[-1]


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards, in the same order of micro-batches.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.
    """
    forwards = [PipelineTask("forward", i) for i in range(microbatches)]
    backwards = [PipelineTask("backward", i) for i in range(microbatches)]
    return Schedule("gpipe", [forwards + backwards] * stages, microbatches)


def one_f_one_b(stages: int, microbatches: int, in_flight: Sequence[int] | None = None) -> Schedule:
    """n - 1 forwards at a stage with the limit n, then a forward and a backward in turn, then the remaining backwards.

    At most n micro-batches are in flight: K - k at stage k, unless ``in_flight`` tells that of each stage.

    Source: D. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (2021), PipeDream-Flush.

    >>> [f"{task.kind[0]}{task.microbatch}" for task in one_f_one_b(2, 3).orders[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    forwards = [PipelineTask("forward", i) for i in range(microbatches)]
    backwards = [PipelineTask("backward", i) for i in range(microbatches)]
    limits = _usual_limits(stages) if in_flight is None else in_flight
    return Schedule("1f1b", [_in_turn(forwards, backwards, limit - 1) for limit in limits], microbatches)


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """1F1B over K v virtual stages, v of them on each stage; groups of K micro-batches pass a chunk together.

    Stage k is 2 (K - 1 - k) + (v - 1) K forwards ahead of its backwards.

    Raises:
        SpecError: a number of micro-batches that K does not divide.

    Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
    (2021), section 2.2.2.
    """
    if microbatches % stages:
        raise SpecError("microbatches", microbatches, f"a multiple of the {stages} stages, as interleaving needs")
    passes = [
        (group * stages + i, chunk)
        for group in range(microbatches // stages)
        for chunk in range(chunks)
        for i in range(stages)
    ]
    forwards = [PipelineTask("forward", i, chunk) for i, chunk in passes]
    backwards = [PipelineTask("backward", i, chunks - 1 - chunk) for i, chunk in passes]
    orders = []
    for stage in range(stages):
        ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        orders.append(_in_turn(forwards, backwards, len(forwards) if microbatches == stages else ahead))
    return Schedule("interleaved", orders, microbatches, chunks)


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """1F1B whose backward is split: stage k's weight gradients follow k backwards late, into what would be the bubble.

    No stage holds more micro-batches than the first one of 1F1B does.

    Source: P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism" (2023), section 2.2 (ZB-H1).
    """
    orders = []
    for stage, order in enumerate(one_f_one_b(stages, microbatches).orders):
        split: Order = []
        for task in order:
            split.append(task)
            if task.kind == "backward" and task.microbatch >= stage:
                split.append(PipelineTask("weight", task.microbatch - stage))
        late = range(max(0, microbatches - stage), microbatches)
        orders.append(split + [PipelineTask("weight", i) for i in late])
    return Schedule("zb-h1", orders, microbatches, splits_backward=True)


def async_one_f_one_b(stages: int, microbatches: int, in_flight: Sequence[int] | None = None) -> Schedule:
    """1F1B that never flushes: each stage updates its weights after each backward, and goes on with the next forward.

    Source: D. Narayanan et al., "PipeDream" (2019), section 3.2.
    """
    return one_f_one_b(stages, microbatches, in_flight)._replace(name="async-1f1b", updates="every")


def greedy(stages: int, microbatches: int, in_flight: Sequence[int] | None = None) -> Schedule:
    """Whatever can run first: a backward if its input is there, else a forward unless as many as may are in flight.

    At most K - k are at stage k, unless ``in_flight`` tells otherwise. Each backward is followed by an update, as in
    `async_one_f_one_b`, whose order this is if stages are even and links take no time.
    """
    limits = tuple(_usual_limits(stages) if in_flight is None else in_flight)
    return Schedule("greedy", [], microbatches, updates="every", limits=limits)


def _usual_limits(stages: int) -> range:
    """K - k at stage k from 0: no less lets stage k be busy while its first micro-batch goes to the end and back."""
    return range(stages, 0, -1)


def _in_turn(forwards: Order, backwards: Order, ahead: int) -> Order:
    """``ahead`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forwards))
    pairs = zip(forwards[ahead:], backwards, strict=False)
    return forwards[:ahead] + [task for pair in pairs for task in pair] + backwards[len(forwards) - ahead :]


def source_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """The stage whose output a task waits for; None if it needs none from another stage."""
    return _beside(task, stage, stages, chunks, {"forward": -1, "backward": 1})


def target_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """The stage that waits for a task's output; None if no other does."""
    return _beside(task, stage, stages, chunks, {"forward": 1, "backward": -1})


def _beside(task: PipelineTask, stage: int, stages: int, chunks: int, ways: dict[Kind, int]) -> int | None:
    """The stage of the model's part that lies a step away, by kind; weight gradients stay where they are."""
    part = task.chunk * stages + stage + ways.get(task.kind, 0)
    inside = 0 <= part < chunks * stages
    return part % stages if task.kind in ways and inside and stages > 1 else None


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "async-1f1b": async_one_f_one_b,
    "greedy": greedy,
}

LIMITED = ("1f1b", "async-1f1b", "greedy")
"""Schedules that an in-flight limit makes another of."""


def schedule(
    name: str, stages: int, microbatches: int, chunks: int = 1, in_flight: int | Sequence[int] | None = None
) -> Schedule:
    """The schedule of that name.

    Args:
        name: one of ``SCHEDULES``.
        stages: K, at least 1.
        microbatches: M, at least 1.
        chunks: v, of the interleaved schedule, at least 2 there; 1 for all others.
        in_flight: for those in ``LIMITED``, the most micro-batches that may be between forward and backward at a
            stage: of each, or of all (in a fixed order at most the usual limit); usually K - k at stage k from 0.

    Raises:
        SpecError: what cannot be.
    """
    if name not in SCHEDULES:
        raise SpecError("schedule", name, one_of(SCHEDULES, str(name)))
    for field, count in (("stages", stages), ("microbatches", microbatches)):
        if count < 1:
            raise SpecError(field, count, "at least 1")
    if name == "interleaved":
        if chunks < 2:
            raise SpecError("chunks", chunks, "at least 2 for the interleaved schedule; with 1 it is 1f1b")
    elif chunks != 1:
        raise SpecError("chunks", chunks, f"1, as {name} does not interleave; the interleaved schedule does")
    if in_flight is not None:
        if name not in LIMITED:
            raise SpecError("in_flight", in_flight, f"nothing with {name}; a limit is for {', '.join(LIMITED)}")
        return SCHEDULES[name](stages, microbatches, _limits(in_flight, stages, microbatches, name != "greedy"))
    return SCHEDULES[name](stages, microbatches, *([chunks] if name == "interleaved" else []))


def _limits(in_flight: int | Sequence[int], stages: int, microbatches: int, fixed: bool) -> tuple[int, ...]:
    """The limit of each stage, checked: with one that is too small a stage would wait for ever."""
    if isinstance(in_flight, Sequence):
        limits = tuple(in_flight)
    else:  # ahead of its usual place a fixed order only waits
        limits = tuple(min(in_flight, usual) if fixed else in_flight for usual in _usual_limits(stages))
    if len(limits) != stages:
        raise SpecError("in_flight", in_flight, f"one limit, or one for each of the {stages} stages")
    for stage, limit in enumerate(limits):
        if limit < 1:
            raise SpecError("in_flight", limit, f"at least 1: stage {stage + 1} never runs forward 1 otherwise")
    for stage in range(1, stages if fixed else 0):
        before, limit = (min(one, microbatches) for one in limits[stage - 1 : stage + 1])
        if limit > before:
            raise SpecError(
                "in_flight",
                limit,
                f"at most {before} at stage {stage + 1}: before its backward 1 it waits for forward {before + 1} of "
                f"stage {stage}, which with the limit {before} waits for that backward first",
            )
    return limits
