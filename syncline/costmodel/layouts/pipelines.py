"""Pipelines in closed form: seconds of schedules on links without and with delays, and the blocks of each stage.

A pipeline has K stages and M micro-batches. `pipeline_s` has equal stages and no messages, `gpipe_s` equal stages and
equal lines, `gpipe_ends_s` any stages and lines, and `one_f_one_b_s` any stages. The sources of the schedules are in
`syncline.sim.pipelines.schedules`.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.collectives.table import TABLE, TIMED_AS_A_WHOLE
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, require_one_of

CLOSED_FORMS = ("gpipe", "1f1b", "interleaved", "zb-h1", "async-1f1b")
"""Schedules with a closed form."""


def pipeline_s(
    schedule: str,
    stages: IntOrArray,
    microbatches: IntOrArray,
    forward_s: FloatOrArray,
    backward_s: FloatOrArray,
    *,
    weight_s: FloatOrArray = 0.0,
    chunks: IntOrArray = 1,
) -> FloatOrArray:
    """Return the seconds of a pipeline from the first forward to the last backward pass, without messages.

    | schedule               | seconds                              |
    |------------------------|--------------------------------------|
    | `gpipe`                | ``(M + K - 1) (F + B)``              |
    | `1f1b`, `async-1f1b`   | ``(M + K - 1) (F + B)``              |
    | `interleaved`          | ``(M + (K - 1) / v) (F + B)``        |
    | `zb-h1`                | ``M (F + B + W) + (K - 1) (F + B - W)`` |

    In the interleaved schedule F and B cover all v chunks of a stage.

    Args:
        schedule: one of ``CLOSED_FORMS``.
        stages: K, number of stages.
        microbatches: M, number of micro-batches; a multiple of K for ``interleaved``, at least K for ``zb-h1``.
        forward_s: F, seconds of a forward pass per stage and micro-batch.
        backward_s: B, seconds of a backward pass; for ``zb-h1`` only of the inputs' gradient, with W <= B <= F + W.
        weight_s: W, seconds for the gradient of the weights with ``zb-h1``; other schedules include it in B.
        chunks: v, chunks per stage; 1 for all schedules but ``interleaved``.

    >>> [pipeline_s(name, 4, 8, 1.0, 2.0) for name in ("gpipe", "1f1b", "async-1f1b")]
    [33.0, 33.0, 33.0]
    >>> pipeline_s("interleaved", 4, 8, 1.0, 2.0, chunks=2), pipeline_s("zb-h1", 4, 8, 1.0, 1.0, weight_s=1.0)
    (28.5, 27.0)
    """
    require_one_of("schedule", schedule, CLOSED_FORMS)
    if schedule == "zb-h1":
        work = microbatches * (forward_s + backward_s + weight_s)
        return work + (stages - 1) * (forward_s + backward_s - weight_s)
    return (microbatches + (stages - 1) / chunks) * (forward_s + backward_s)


def bubble(stages: IntOrArray, microbatches: IntOrArray, chunks: IntOrArray = 1) -> FloatOrArray:
    """Return the fraction of a step in which a stage of GPipe or 1F1B is idle: ``(K - 1) / (v M + K - 1)``.

    K is the number of stages, M that of micro-batches, and v the number of chunks of a stage.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.

    >>> f"{bubble(4, 8):.4f}, {bubble(4, 8, chunks=2):.4f}"
    '0.2727, 0.1579'
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def stage_delays(stages: int) -> np.ndarray:
    """Return the gradient delays of an asynchronous pipeline's K stages, ``(K,)``, from K - 1 updates down to 0.

    The delay is the number of updates between the use of a weight and the update by the weight's gradient.

    Source: Basis Rotation, section 2.3 (which counts stages from 1).
    """
    return np.arange(stages - 1, -1, -1)


def even_parts(count: int, parts: int) -> list[range]:
    """Split ``count`` items into ``parts`` runs in order; the first runs get one more item if the split is not even.

    >>> [len(part) for part in even_parts(8, 3)]
    [3, 3, 2]
    """
    size, remainder = divmod(count, parts)
    begins = [part * size + min(part, remainder) for part in range(parts + 1)]
    return [range(begin, end) for begin, end in pairwise(begins)]


def block_stages(blocks: int, stages: int) -> list[range]:
    """Return the consecutive model blocks of each pipeline stage; stages differ by at most one block."""
    if not 1 <= stages <= blocks:
        raise SpecError("stages", stages, f"from 1 to {blocks}: a stage has at least one of the model's blocks")
    return even_parts(blocks, stages)


LIBRARY, CENTRAL = "library", "reduce+broadcast"

AVERAGINGS = (LIBRARY, CENTRAL, *(name for name in TABLE["all_reduce"] if name not in TIMED_AS_A_WHOLE))
"""Names of the ways in which the replicas of a pipeline's stage average their gradient, see `averaging_calls`."""


def averaging_calls(averaging: str = LIBRARY) -> tuple[tuple[str, str | None], ...]:
    """Return the collectives by which the replicas of a pipeline stage average their gradient.

    | averaging          | collectives                                     | software                              |
    |--------------------|-------------------------------------------------|---------------------------------------|
    | `library`          | an all-reduce of the network's library          | DDP, Megatron-LM                      |
    | `reduce+broadcast` | a reduce to the first replica, then a broadcast | a central server, DT-FM's central_ps  |
    | `direct`           | an all-reduce by direct exchange                | sharded servers, DT-FM's sharded_ps   |
    | another algorithm  | an all-reduce by this algorithm                 | `ring`, `tree`, `server-naive`, ...   |

    Returns:
        Pairs of a collective and its algorithm, in order; None means the default algorithm of the network.

    >>> averaging_calls("reduce+broadcast")
    (('reduce', None), ('broadcast', None))

    Source: github.com/DS3Lab/DT-FM (2022), data_parallel/dist_dp_central_ps.py (``reduce``, then ``broadcast`` of the
    flattened gradient) and comm/nccl_backend.py, ``all_reduce_opt`` (grouped sends of each part to its owner, a sum,
    and grouped sends of the sum).
    """
    if averaging == LIBRARY:
        return (("all_reduce", None),)
    if averaging == CENTRAL:
        return ("reduce", None), ("broadcast", None)
    require_one_of("averaging", averaging, AVERAGINGS)
    return (("all_reduce", averaging),)


TIE = 1e-9
"""Fraction of a message's time by which a message must be ready before its predecessor leaves, to count as queued."""


def gpipe_s(
    stages: IntOrArray,
    microbatches: IntOrArray,
    forward_s: FloatOrArray,
    backward_s: FloatOrArray,
    message_s: FloatOrArray = 0.0,
    latency_s: FloatOrArray = 0.0,
    ahead: IntOrArray = 0,
) -> FloatOrArray:
    """Return the seconds of a flush of GPipe, which runs all M forward passes before the M backward passes.

    The K stages are equal, and so are the lines between them. A line carries one message at a time for m seconds each,
    and a message arrives alpha seconds after it has left; each direction has its own lines. With X = F or B a direction
    takes

        K X + (K - 1)(m + alpha) + (M - 1) max(X, m) + [X < m] min(d, M - 1) ((K - 2) m + X),

    where [X < m] is 1 on a busy line, else 0. On a busy line a message arrives only with the last of the d messages
    behind it. The backward direction begins when the forward one ends. All numbers broadcast.

    Args:
        stages: K, number of stages.
        microbatches: M, number of micro-batches.
        forward_s: F, seconds of a stage's forward pass of a micro-batch.
        backward_s: B, seconds of a stage's backward pass of a micro-batch.
        message_s: m, seconds in which a message leaves.
        latency_s: alpha, latency of a line.
        ahead: d, number of messages that the sender hands over ahead (`messages_ahead` of NCCL's costs, else 0).

    Source: Y. Huang et al., "GPipe" (2019), section 2.3, for m = 0; the lines are our derivation.

    >>> float(gpipe_s(4, 8, 1.0, 2.0))
    33.0
    >>> line = 2**23 / 125e6  # 8 MiB at 1 Gbit/s
    >>> [round(float(gpipe_s(8, 64, 0.0207, 0.0621, line, 10e-3, ahead)), 2) for ahead in (0, 2)]
    [10.2, 11.97]
    """
    lines = np.subtract(stages, 1)
    later_microbatches = np.subtract(microbatches, 1)
    queued = np.minimum(ahead, later_microbatches)
    total_s = 0.0
    for pass_s in (forward_s, backward_s):
        fill_s = stages * np.asarray(pass_s) + lines * np.add(message_s, latency_s)
        is_line_busy = np.less(pass_s, message_s) & np.greater(lines, 0)
        period_s = np.where(is_line_busy, message_s, pass_s)
        queue_s = is_line_busy * queued * ((lines - 1) * message_s + pass_s)
        total_s = total_s + fill_s + later_microbatches * period_s + queue_s
    return np.asarray(total_s, dtype=np.float64)[()]  # a number if all arguments are numbers


def gpipe_ends_s(
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    messages_s: ArrayLike,
    latencies_s: ArrayLike,
    microbatches: int,
    ahead: int = 0,
    flushes: int = 1,
) -> NDArray[np.float64]:
    """Return the end of the last backward pass of each of K stages of a GPipe pipeline on unequal lines, in seconds.

    The lines between stages are as in `gpipe_s`, but each has its own times. The first stage ends a flush last, and
    then begins the next flush.

    Args:
        forward_s: F_k, forward seconds of each stage, ``(..., K)``; further axes are independent pipelines.
        backward_s: B_k, backward seconds of each stage, ``(..., K)``.
        messages_s: m, seconds in which a message leaves on each line, ``(..., 2, K - 1)``: forward, then backward.
        latencies_s: alpha, latencies of the same lines in seconds, ``(..., 2, K - 1)``.
        microbatches: M, number of micro-batches of a flush.
        ahead: d, see `gpipe_s`.
        flushes: number of flushes before the update.

    Returns:
        The ends, ``(..., K)``.

    >>> gpipe_ends_s([1.0, 1.0], [2.0, 2.0], [[0.5], [0.5]], [[0.0], [0.0]], microbatches=3)
    array([13. , 10.5])
    """
    forward, backward = np.asarray(forward_s, dtype=np.float64), np.asarray(backward_s, dtype=np.float64)
    messages, latencies = np.asarray(messages_s, dtype=np.float64), np.asarray(latencies_s, dtype=np.float64)
    stages = forward.shape[-1]
    lines = (2, stages - 1)
    if backward.shape[-1] != stages or messages.shape[-2:] != lines or latencies.shape[-2:] != lines:
        raise SpecError("messages_s", messages.shape, f"(..., 2, {stages - 1}): the lines between {stages} stages")
    require(microbatches >= 1, "microbatches", microbatches, "at least 1")
    require(flushes >= 1, "flushes", flushes, "at least 1")
    pipelines = np.broadcast_shapes(forward.shape[:-1], backward.shape[:-1], messages.shape[:-2], latencies.shape[:-2])
    end_s = np.zeros((*pipelines, stages))
    for direction, passes_s in enumerate((forward, backward)):
        is_forward = direction == 0
        input_s = np.zeros((*pipelines, microbatches))  # times at which the inputs of a stage's passes arrive
        order = range(stages) if is_forward else range(stages)[::-1]
        for stage in order:
            # A stage begins its backward passes after its last forward pass; forward, the ends are still 0.
            input_s = np.maximum(input_s, end_s[..., stage, None])
            output_s = _completions(input_s, passes_s[..., stage, None])
            end_s[..., stage] = output_s[..., -1]
            if stage != order[-1]:
                line = stage if is_forward else stage - 1  # line i joins stages i and i + 1
                message_s, latency_s = messages[..., direction, line, None], latencies[..., direction, line, None]
                input_s = _arrivals(output_s, message_s, latency_s, ahead)
    flush_s = end_s[..., :1]  # the first stage ends last
    return end_s + (flushes - 1) * flush_s


def _completions(ready_s: NDArray[np.float64], task_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ends of equal tasks that are ready at these times, ``(..., M)``, and run one after another.

    With t the seconds of a task, task i ends at ``max over j <= i of ready_j + (i - j + 1) t``.
    """
    index = np.arange(ready_s.shape[-1], dtype=np.float64)
    return np.maximum.accumulate(ready_s - index * task_s, axis=-1) + (index + 1) * task_s


def _arrivals(
    ready_s: NDArray[np.float64], message_s: NDArray[np.float64], latency_s: NDArray[np.float64], ahead: int
) -> NDArray[np.float64]:
    """Return the times at which a pipeline's M messages arrive over a line, from those at which they are ready.

    A message is queued if it is ready before the message in front of it has left. Each message arrives with the last of
    the queued messages directly behind it, of which at most ``ahead`` count (d of `gpipe_s`). The arrays are
    ``(..., M)`` for ``ready_s`` and the result, and ``(..., 1)`` for the line.
    """
    departure_s = _completions(ready_s, message_s)
    is_queued = ready_s[..., 1:] < departure_s[..., :-1] - TIE * message_s  # by message; the first one has no entry
    complete_s = departure_s.copy()
    num_messages = ready_s.shape[-1]
    are_all_queued = np.ones_like(is_queued)  # whether the next `distance` messages are all queued
    for distance in range(1, min(ahead, num_messages - 1) + 1):
        are_all_queued = are_all_queued[..., : num_messages - distance] & is_queued[..., distance - 1 :]
        complete_s[..., :-distance] = np.where(are_all_queued, departure_s[..., distance:], complete_s[..., :-distance])
    return complete_s + latency_s


class _Task(NamedTuple):
    """The forward or backward pass of one micro-batch at one stage."""

    is_backward: bool
    stage: int
    microbatch: int

    def source(self, stages: int) -> _Task | None:
        """Return the task at the neighbouring stage whose message this task waits for; None if it waits for none.

        The last stage computes the loss itself, so that its backward pass waits for no message.
        """
        stage = self.stage + 1 if self.is_backward else self.stage - 1
        return self._replace(stage=stage) if 0 <= stage < stages else None


def one_f_one_b_s(
    forward_s: ArrayLike, backward_s: ArrayLike, microbatches: int, send_s: FloatOrArray = 0.0
) -> NDArray[np.float64]:
    """Return the end of the last backward pass of each of K stages in a 1F1B pipeline, in seconds, ``(K, ...)``.

    A task starts when the stage's previous task has ended and the task's input has arrived. A message takes a fixed
    time and blocks no other message.

    Args:
        forward_s: forward seconds of a micro-batch at each stage, ``(K, ...)``; further axes are independent pipelines.
        backward_s: backward seconds of a micro-batch at each stage, ``(K, ...)``.
        microbatches: number of micro-batches, at least 1.
        send_s: seconds in which an activation or a gradient travels to the next stage; broadcasts to ``(...)``.

    Source: see `syncline.sim.pipelines.schedules.one_f_one_b`.

    >>> one_f_one_b_s([1.0, 1.0], [2.0, 2.0], microbatches=3)  # the first stage ends at (M + K - 1)(F + B)
    array([12., 10.])
    >>> one_f_one_b_s([1.0, 3.0], [2.0, 4.0], microbatches=3, send_s=0.5)
    array([25. , 22.5])
    """
    forward, backward = np.asarray(forward_s, dtype=float), np.asarray(backward_s, dtype=float)
    if forward.ndim == 0 or forward.shape != backward.shape or not forward.shape[0]:
        raise SpecError("backward_s", backward.shape, "the shape of forward_s, with one stage at least in front")
    require(np.greater_equal(microbatches, 1), "microbatches", microbatches, "at least 1")
    for name, value in (("forward_s", forward), ("backward_s", backward), ("send_s", np.asarray(send_s))):
        require(value >= 0, name, value, "seconds, at least 0")
    stages = forward.shape[0]
    stage_end_s = np.zeros(forward.shape)
    task_end_s: dict[_Task, NDArray[Any]] = {}  # ends of tasks whose output another task still needs
    for task in _task_order(stages, microbatches):
        start_s = stage_end_s[task.stage]
        source = task.source(stages)
        if source is not None:
            start_s = np.maximum(start_s, task_end_s.pop(source) + send_s)
        task_s = backward[task.stage] if task.is_backward else forward[task.stage]
        stage_end_s[task.stage] = task_end_s[task] = start_s + task_s
    return stage_end_s


@lru_cache(maxsize=256)
def _task_order(stages: int, microbatches: int) -> tuple[_Task, ...]:
    """Return all tasks of 1F1B, each after its stage's previous task and after the task that makes its input."""
    remaining_tasks = [deque(_stage_tasks(stage, stages, microbatches)) for stage in range(stages)]
    order: dict[_Task, None] = {}  # a set in the order of insertion
    while any(remaining_tasks):
        for stage_tasks in remaining_tasks:  # each stage proceeds to its first task whose input is not made yet
            while stage_tasks:
                source = stage_tasks[0].source(stages)
                if source is not None and source not in order:
                    break
                order[stage_tasks.popleft()] = None
    return tuple(order)


def _stage_tasks(stage: int, stages: int, microbatches: int) -> list[_Task]:
    """Return the tasks of a stage in 1F1B's order: forward passes to warm up, then forward and backward in turn."""
    warmup = min(microbatches, stages - 1 - stage)  # forward passes before the first gradient can arrive
    tasks = [_Task(is_backward=False, stage=stage, microbatch=number) for number in range(warmup)]
    for number in range(microbatches):
        if warmup + number < microbatches:
            tasks.append(_Task(is_backward=False, stage=stage, microbatch=warmup + number))
        tasks.append(_Task(is_backward=True, stage=stage, microbatch=number))
    return tasks
