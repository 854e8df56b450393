"""The layout of a replica on workers, all possible layouts of a model, and the placement of ranks on a network.

A replica has ``t c d k`` workers. In the order of ranks, the innermost ``t`` workers share each matrix (tensor), then
``c`` share each sequence (context), ``d`` see different sequences (data), and ``k`` are stages (pipeline). Replicas are
consecutive blocks of ranks. The workers that communicate most are therefore neighbours. Experts have an order of their
own: the innermost ``f`` of the ``t c d`` workers share each expert's matrices, then ``e`` share the experts of a layer,
whichever sequence they see, and the others have copies.

A *placement* puts ranks on the positions of a network. By the rule ``given`` rank i has position i. By
``stages-inside`` the workers of a replica are neighbours, so that replicas average across places. By
``replicas-inside`` the replicas of a stage are neighbours, so that stages send across places.

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), section 3; the
order is Megatron-LM's (``tp-cp-ep-dp-pp``). D. Liu et al., "MoE Parallel Folding" (2025): experts over ``t c d``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.model_shape import Model, ModelShape
from syncline.costmodel.layouts.pipelines import even_parts
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Ints, Network
from syncline.errors import SpecError, one_of

ContextBy = Literal["gathers", "all-to-all"]

CONTEXTS: tuple[str, ...] = get_args(ContextBy)

WAYS = ("tensor", "context", "data", "pipeline", "expert", "chunks", "copies")
"""The fields of a `Layout` that are numbers of workers, chunks and copies."""


@dataclass(frozen=True)
class Layout:
    """The number of workers of a replica in each dimension of parallelism.

    Args:
        tensor: t, workers that share each matrix and the activations around it; a divisor of the heads.
        context: c, workers that share each sequence.
        data: d, workers that see different sequences and average their gradients in every step, under any method;
            optimizer states, or the whole state of a model, can be sharded over them.
        pipeline: k, stages.
        expert: e, workers that share the experts of each layer; a divisor of ``t c d / f`` and of the experts.
        chunks: v, chunks of each stage, visited in turn (interleaved 1F1B).
        copies: copies of sharded states among the c d workers, each on neighbours; a divisor of c d. torchtitan calls
            them ``data_parallel_replicate_degree`` (HSDP), Megatron-LM ``num_distributed_optimizer_instances``.
        ends_as_layers: whether the embedding and the loss count as a layer each when layers are split into chunks
            (Megatron-LM's ``account_for_embedding_in_pipeline_split`` and ``..._loss_...``).
        expert_tensor: f, workers that share each matrix of an expert (Megatron-LM's ``expert_tensor_parallel_size``); a
            divisor of t. None: t.
        context_by: how the workers of a context get what they miss. ``gathers``: keys and values, for the queries of
            their part of the sequence. ``all-to-all``: the whole sequence for their part of the heads (Ulysses).
        chunk_layers: number of layers of each of the k v chunks, in the order of the layers; empty for an even split.

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
    ends_as_layers: bool = False
    chunk_layers: tuple[int, ...] = ()
    expert_tensor: int | None = None
    context_by: ContextBy = "gathers"

    def __post_init__(self) -> None:
        """Refuse degrees of parallelism that are no whole numbers or contradict each other."""
        for name in WAYS:
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SpecError(f"layout.{name}", count, "a whole number, at least 1")
        if self.expert_tensor is not None and (self.expert_tensor < 1 or self.tensor % self.expert_tensor):
            raise SpecError("layout.expert_tensor", self.expert_tensor, f"a divisor of layout.tensor, {self.tensor}")
        if self.context_by not in CONTEXTS:
            raise SpecError("layout.context_by", self.context_by, one_of(CONTEXTS, self.context_by))
        factor = self.tensor // self.expert_ways
        for name, limit in (("expert", factor * self.sharers), ("copies", self.sharers)):
            if limit % getattr(self, name):
                expected = f"layout.data, which is {self.data}"
                if limit != self.data:
                    expected = f"{'tensor times ' * (limit != self.sharers)}context times data, {limit}"
                raise SpecError(f"layout.{name}", getattr(self, name), f"a divisor of {expected}")
        if self.chunks > 1 and self.pipeline == 1:
            raise SpecError("layout.chunks", self.chunks, "1 without a pipeline")
        runs = self.pipeline * self.chunks
        if self.ends_as_layers and (runs == 1 or self.chunk_layers):
            expected = "false without a pipeline, and beside chunk_layers"
            raise SpecError("layout.ends_as_layers", self.ends_as_layers, expected)
        if self.chunk_layers and (len(self.chunk_layers) != runs or min(self.chunk_layers) < 0):
            raise SpecError("layout.chunk_layers", list(self.chunk_layers), f"{runs} numbers of layers, one per chunk")

    def layers_of_chunks(self, layers: int) -> tuple[int, ...]:
        """Return the number of layers of each of the k v chunks, in the order of the layers, ``(k v,)``.

        >>> Layout(pipeline=2, chunks=2, ends_as_layers=True).layers_of_chunks(10)
        (2, 3, 3, 2)
        """
        if self.chunk_layers:
            return self.chunk_layers
        ends = int(self.ends_as_layers)
        sizes = [len(part) for part in even_parts(layers + 2 * ends, self.pipeline * self.chunks)]
        sizes[0] -= ends
        sizes[-1] -= ends
        return tuple(sizes)

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
    def expert_ways(self) -> int:
        """Return f, the number of workers that share each matrix of an expert."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    @property
    def expert_group(self) -> range:
        """Return the ranks of the first group that shares a layer's experts."""
        return range(0, self.expert_ways * self.expert, self.expert_ways)

    @property
    def expert_gradient_group(self) -> range:
        """Return the ranks of the first group of workers with the same parameters of experts."""
        return range(0, self.tensor * self.sharers, self.expert_ways * self.expert)

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
            name = next(name for name in WAYS if getattr(self, name) > 1)
            expected = f"1, as {model.name} is a module: a transformer by name, config or fields can be laid out"
            raise SpecError(f"layout.{name}", getattr(self, name), expected)
        sizes = {"heads": model.heads, "heads of keys": model.kv_heads or model.heads}
        if model.experts == 1 or model.dense_layers:
            sizes["hidden width"] = model.hidden_width
        for label, size in sizes.items():
            if size % self.tensor:
                raise SpecError("layout.tensor", self.tensor, f"a divisor of the {label} of {model.name}, {size:,}")
            if self.context_by == "all-to-all" and label != "hidden width" and size % (self.tensor * self.context):
                expected = f"such that tensor times context divides the {label} of {model.name}, {size:,}"
                raise SpecError("layout.context", self.context, expected)
        if model.experts > 1 and model.expert_width % self.expert_ways:
            name = "tensor" if self.expert_tensor is None else "expert_tensor"
            expected = f"a divisor of the hidden width of {model.name}, {model.expert_width:,}"
            raise SpecError(f"layout.{name}", self.expert_ways, expected)
        if model.sequence % self.context:
            expected = f"a divisor of the sequence of {model.sequence:,} tokens"
            raise SpecError("layout.context", self.context, expected)
        if self.pipeline > model.layers:
            raise SpecError("layout.pipeline", self.pipeline, f"at most the {model.layers} layers of {model.name}")
        split_layers = model.layers + 2 * self.ends_as_layers
        if not self.chunk_layers and self.pipeline * self.chunks > split_layers:
            limit, ends = split_layers // self.pipeline, " with the ends" if self.ends_as_layers else ""
            raise SpecError("layout.chunks", self.chunks, f"at most {limit}: there are {split_layers} layers{ends}")
        if self.chunk_layers and sum(self.chunk_layers) != model.layers:
            expected = f"numbers whose sum is {model.layers}, the layers of {model.name}"
            raise SpecError("layout.chunk_layers", list(self.chunk_layers), expected)
        if model.experts % self.expert:
            label = f"a divisor of the {model.experts} experts" if model.experts > 1 else "1, as there are no experts"
            raise SpecError("layout.expert", self.expert, f"{label} of {model.name}")
        return model

    def describe(self) -> str:
        """Return the sizes other than 1 as text: ``tensor 8, pipeline 4``."""
        parts = [f"{name} {getattr(self, name)}" for name in WAYS if getattr(self, name) > 1]
        parts += [f"expert tensor {self.expert_tensor}"] if self.expert_tensor is not None else []
        parts += ["context by all-to-all"] if self.context_by == "all-to-all" else []
        parts += ["ends as layers"] if self.ends_as_layers else []
        parts += [f"layers {'+'.join(map(str, self.chunk_layers))}"] if self.chunk_layers else []
        return ", ".join(parts) or "one worker"

    @property
    def changed_fields(self) -> dict[str, Any]:
        """Return the fields that differ from those of one worker, by name."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


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

    Workers that share experts do not split their matrices, as most users of Megatron-LM have it; without expert
    parallelism they split them like all others.

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
                    for e in _divisors(t * c * d, model.experts):
                        for v in chunks if k > 1 else (1,):
                            layout = Layout(t, c, d, k, e, v, expert_tensor=1 if e > 1 and t > 1 else None)
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
