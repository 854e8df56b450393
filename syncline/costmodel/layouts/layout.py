"""The layout of a replica on workers, all possible layouts of a model, and the placement of ranks on a network.

A replica has ``t c d k`` workers. In the order of ranks, the innermost ``t`` workers share each matrix (tensor), then
``c`` share each sequence (context), ``d`` see different sequences (data), and ``k`` are stages (pipeline). Replicas are
consecutive blocks of ranks. The workers that communicate most are therefore neighbours. Neighbours among the ``c d``
workers share experts, whichever sequence they see.

A *placement* puts ranks on the positions of a network. By the rule ``given`` rank i has position i. By
``stages-inside`` the workers of a replica are neighbours, so that replicas average across places. By
``replicas-inside`` the replicas of a stage are neighbours, so that stages send across places.

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), section 3; the
order is Megatron-LM's (``tp-cp-ep-dp-pp``). D. Liu et al., "MoE Parallel Folding" (2025): experts over ``c d``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.model_shape import Model, ModelShape
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Ints, Network
from syncline.errors import SpecError


@dataclass(frozen=True)
class Layout:
    """The number of workers of a replica in each dimension of parallelism.

    Args:
        tensor: t, workers that share each matrix and the activations around it; a divisor of the heads.
        context: c, workers that share each sequence.
        data: d, workers that see different sequences and average their gradients in every step, under any method;
            optimizer states, or the whole state of a model, can be sharded over them.
        pipeline: k, stages.
        expert: e, workers that share the experts of each layer, among the ``c d`` workers that hold equal copies of the
            rest of the layer; a divisor of c d and of the experts.
        chunks: v, chunks of each stage, visited in turn (interleaved 1F1B); each has at least one layer.
        copies: copies of sharded states among the c d workers, each on neighbours; a divisor of c d. torchtitan calls
            them ``data_parallel_replicate_degree`` (HSDP), Megatron-LM ``num_distributed_optimizer_instances``.

    >>> Layout(tensor=8, pipeline=4).workers
    32
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    chunks: int = 1
    copies: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            count = getattr(self, field.name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SpecError(f"layout.{field.name}", count, "a whole number, at least 1")
        for name in ("expert", "copies"):
            if self.sharers % getattr(self, name):
                data = f"layout.data, which is {self.data}"
                expected = data if self.context == 1 else f"context times data, {self.sharers}"
                raise SpecError(f"layout.{name}", getattr(self, name), f"a divisor of {expected}")
        if self.chunks > 1 and self.pipeline == 1:
            raise SpecError("layout.chunks", self.chunks, "1 without a pipeline")

    @property
    def workers(self) -> int:
        """Return the number of workers of a replica: ``t c d k``."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def sharers(self) -> int:
        """Return the number of workers of a replica with the same parameters, which average gradients: ``c d``."""
        return self.context * self.data

    @property
    def tensor_group(self) -> range:
        """Return the ranks of the first group that shares each matrix."""
        return range(self.tensor)

    @property
    def context_group(self) -> range:
        """Return the ranks of the first group that shares a sequence."""
        return range(0, self.tensor * self.context, self.tensor)

    @property
    def expert_group(self) -> range:
        """Return the ranks of the first group that shares a layer's experts."""
        return range(0, self.tensor * self.expert, self.tensor)

    @property
    def gradient_group(self) -> range:
        """Return the ranks of the first group of workers with the same parameters."""
        return range(0, self.tensor * self.sharers, self.tensor)

    @property
    def pipeline_group(self) -> range:
        """Return the ranks of the first pipeline."""
        stride = self.tensor * self.sharers
        return range(0, stride * self.pipeline, stride)

    def replica_group(self, workers: int) -> range:
        """Return the ranks of the first worker of each replica among P workers."""
        return range(0, workers, self.workers)

    def replicas(self, workers: int) -> int:
        """Return the number of replicas that P workers form."""
        if workers % self.workers:
            expected = f"a multiple of {self.workers}, the workers of a replica by layout ({self.describe()})"
            raise SpecError("workers", workers, expected)
        return workers // self.workers

    def check(self, model: Model) -> ModelShape:
        """Return the model; refuse one that is no transformer, or whose sizes this layout does not divide."""
        if not isinstance(model, ModelShape):
            name = next(field.name for field in fields(self) if getattr(self, field.name) > 1)
            expected = f"1, as {model.name} is a module: a transformer by name, config or fields can be laid out"
            raise SpecError(f"layout.{name}", getattr(self, name), expected)
        sizes = {
            "heads": model.heads, "heads of keys": model.kv_heads or model.heads, "hidden width": model.expert_width,
        }  # fmt: skip
        for label, size in sizes.items():
            if size % self.tensor:
                raise SpecError("layout.tensor", self.tensor, f"a divisor of the {label} of {model.name}, {size:,}")
        if model.sequence % self.context:
            expected = f"a divisor of the sequence of {model.sequence:,} tokens"
            raise SpecError("layout.context", self.context, expected)
        if self.pipeline > model.layers:
            raise SpecError("layout.pipeline", self.pipeline, f"at most the {model.layers} layers of {model.name}")
        if self.pipeline * self.chunks > model.layers:
            limit = model.layers // self.pipeline
            raise SpecError("layout.chunks", self.chunks, f"at most {limit}: there are {model.layers} layers")
        if model.experts % self.expert:
            label = f"a divisor of the {model.experts} experts" if model.experts > 1 else "1, as there are no experts"
            raise SpecError("layout.expert", self.expert, f"{label} of {model.name}")
        return model

    def describe(self) -> str:
        """Return the sizes other than 1 as text: ``tensor 8, pipeline 4``."""
        parts = [f"{field.name} {getattr(self, field.name)}" for field in fields(self) if getattr(self, field.name) > 1]
        return ", ".join(parts) or "one worker"


def possible_layouts(
    model: ModelShape,
    workers: int,
    *,
    max_tensor: int = 8,
    max_pipeline: int = 64,
    max_context: int = 1,
    chunks: tuple[int, ...] = (1,),
) -> Iterator[Layout]:
    """Yield every layout whose replicas use all P workers, with expert parallelism if the model has experts.

    Args:
        workers: P.
        max_tensor: largest t, usually the workers of a node.
        max_pipeline: largest k.
        max_context: largest c.
        chunks: values of v to try in layouts with a pipeline.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> [layout.describe() for layout in possible_layouts(MODELS["gpt2"], 4, max_tensor=2, max_pipeline=1)]
    ['one worker', 'data 2', 'data 4', 'tensor 2', 'tensor 2, data 2']
    """
    for t in _divisors(workers, max_tensor):
        for c in _divisors(workers // t, max_context):
            for k in _divisors(workers // (t * c), min(max_pipeline, model.layers)):
                for d in _divisors(workers // (t * c * k), workers):
                    for e in _divisors(c * d, model.experts):
                        for v in chunks if k > 1 else (1,):
                            layout = Layout(t, c, d, k, e, v)
                            try:
                                layout.check(model)
                            except SpecError:
                                continue
                            yield layout


def _divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number up to a limit."""
    return [divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0]


GIVEN, STAGES_INSIDE, REPLICAS_INSIDE = "given", "stages-inside", "replicas-inside"

MESSAGE_BYTES = 8 * 2**20
"""Size of a message by which lines between places are compared: that of an activation."""


def position_count(network: Network, ranks: int) -> int:
    """Return the number of positions on a network: all workers of a matrix's places, or else one for each rank."""
    return network.workers if isinstance(network, Matrix) else ranks


def by_place(network: Network, ranks: int, nbytes: float) -> Ints:
    """Return the positions of a network, ``(N,)``, ordered so that positions with fast lines are neighbours.

    On a matrix the order follows `place_path`. If there are more positions than ranks, those with the slowest lines
    come last.

    Args:
        ranks: number of ranks.
        nbytes: n, bytes of a message.
    """
    if not isinstance(network, Matrix):
        return np.arange(ranks)
    place = np.array(network.ranks)
    seconds = _line_seconds(network, nbytes)
    counts = np.bincount(place, minlength=len(seconds))
    for _ in range(network.workers - ranks):  # leave out a worker of the place with the slowest lines to the others
        others = counts - np.eye(len(counts), dtype=np.int64)  # the other workers of each place, seen from each place
        counts[np.argmax(np.where(counts > 0, (others * seconds).sum(axis=1), -1.0))] -= 1
    order = np.argsort(np.argsort(place_path(network, nbytes))[place], kind="stable")
    used = np.zeros(network.workers, dtype=bool)
    for number, count in enumerate(counts.tolist()):
        used[np.flatnonzero(place == number)[:count]] = True
    return np.concatenate([order[used[order]], order[~used[order]]])


def _line_seconds(network: Matrix, nbytes: float) -> NDArray[np.float64]:
    """Return the seconds of n bytes from each place to each and back, ``(S, S)``; 0 where there is no line."""
    one_way_s = np.zeros((len(network.lines), len(network.lines)))
    for i, row in enumerate(network.lines):
        for j, line in enumerate(row):
            if line is not None:
                one_way_s[i, j] = float(line.latency_s + nbytes / line.goodput_bytes_per_s)
    return one_way_s + one_way_s.T


def place_path(network: Matrix, nbytes: float) -> list[int]:
    """Return all places of a matrix in an order with fast lines between neighbours, by greedy insertion.

    Each place is inserted where it lengthens the path least, with the seconds of n bytes both ways as the length.
    """
    seconds = _line_seconds(network, nbytes)
    path = [0]
    for place in range(1, len(seconds)):
        lengths = []
        for gap in range(len(path) + 1):
            before, after = path[gap - 1 : gap], path[gap : gap + 1]  # each empty at an end of the path
            added_s = sum(seconds[place, neighbour] for neighbour in (*before, *after))
            lengths.append(added_s - (seconds[before[0], after[0]] if before and after else 0.0))
        path.insert(int(np.argmin(lengths)), place)
    return path if path[0] <= path[-1] else path[::-1]


def ruled_positions(rule: str, ordered: Ints, stages: int, replicas: int, width: int = 1) -> Ints:
    """Return the position of each rank by a placement rule, ``(D K w,)``.

    Rank (r K + k) w + i is worker i of stage k of replica r.

    Args:
        rule: ``stages-inside`` or ``replicas-inside``.
        ordered: positions, neighbours next to each other, ``(N,)``.
        stages: K.
        replicas: D.
        width: w, workers of a stage, which are always neighbours.

    >>> [ruled_positions(rule, np.arange(4), 2, 2).tolist() for rule in (STAGES_INSIDE, REPLICAS_INSIDE)]
    [[0, 1, 2, 3], [0, 2, 1, 3]]
    """
    chosen = ordered[: stages * replicas * width]
    if rule == STAGES_INSIDE:
        return chosen
    return chosen.reshape(stages, replicas, width).swapaxes(0, 1).ravel()


def placed_network(network: Network, rule: str, layout: Layout, workers: int) -> Network:
    """Return a matrix with its workers reordered by a placement rule, or any other network as it is.

    Args:
        rule: ``given``, ``stages-inside`` or ``replicas-inside``.
        workers: P, a multiple of the replica's workers.
    """
    if rule == GIVEN or not isinstance(network, Matrix) or workers > network.workers:
        return network
    width = layout.workers // layout.pipeline
    ordered = by_place(network, workers, MESSAGE_BYTES)
    positions = ruled_positions(rule, ordered, layout.pipeline, workers // layout.workers, width)
    ranks = [network.ranks[position] for position in (*positions, *np.setdiff1d(ordered, positions))]
    return replace(network, ranks=tuple(ranks))


def placements_of(network: Network, layout: Layout, workers: int) -> tuple[str, ...]:
    """Return the placement rules that give different networks for a layout, ``given`` first."""
    rules: dict[Network, str] = {}
    for rule in (GIVEN, STAGES_INSIDE, REPLICAS_INSIDE):
        rules.setdefault(placed_network(network, rule, layout, workers), rule)
    return tuple(rules.values())
