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
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, require_one_of

ContextBy = Literal["gathers", "all-to-all"]

CONTEXTS: tuple[str, ...] = get_args(ContextBy)

DEGREES = ("tensor", "context", "data", "pipeline", "expert", "chunks", "copies")
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
            divisor of t. None means that f is t.
        context_by: exchange in a context. ``gathers``: each worker gathers all keys and values for its part of the
            sequence. ``all-to-all``: each worker gets the whole sequence for its part of the heads (Ulysses).
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
        """Raise ``SpecError`` for degrees of parallelism that are no whole numbers or contradict each other."""
        for name in DEGREES:
            degree = getattr(self, name)
            if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
                raise SpecError(f"layout.{name}", degree, "a whole number, at least 1")
        if self.expert_tensor is not None and (self.expert_tensor < 1 or self.tensor % self.expert_tensor):
            raise SpecError("layout.expert_tensor", self.expert_tensor, f"a divisor of layout.tensor, {self.tensor}")
        require_one_of("layout.context_by", self.context_by, CONTEXTS)
        most_experts = self.tensor // self.expert_tensor_workers * self.gradient_workers  # t c d / f
        factors = {  # text by limit; of equal limits the last text stays, which is the shortest
            most_experts: "tensor times context times data,",
            self.gradient_workers: "context times data,",
            self.data: "layout.data, which is",
        }
        for name, limit in (("expert", most_experts), ("copies", self.gradient_workers)):
            degree = getattr(self, name)
            require(limit % degree == 0, f"layout.{name}", degree, f"a divisor of {factors[limit]} {limit}")
        require(self.chunks == 1 or self.pipeline > 1, "layout.chunks", self.chunks, "1 without a pipeline")
        num_chunks = self.pipeline * self.chunks
        if self.ends_as_layers and (num_chunks == 1 or self.chunk_layers):
            expected = "false without a pipeline, and with chunk_layers"
            raise SpecError("layout.ends_as_layers", self.ends_as_layers, expected)
        if self.chunk_layers and (len(self.chunk_layers) != num_chunks or min(self.chunk_layers) < 0):
            expected = f"{num_chunks} numbers of layers, one per chunk"
            raise SpecError("layout.chunk_layers", list(self.chunk_layers), expected)

    def layers_of_chunks(self, layers: int) -> tuple[int, ...]:
        """Return the number of layers of each chunk of a pipeline, in the order of the layers, ``(stages x chunks,)``.

        >>> Layout(pipeline=2, chunks=2, ends_as_layers=True).layers_of_chunks(10)
        (2, 3, 3, 2)
        """
        if self.chunk_layers:
            return self.chunk_layers
        layers_per_end = 1 if self.ends_as_layers else 0  # the embedding and the loss count as layers in the split
        sizes = [len(part) for part in even_parts(layers + 2 * layers_per_end, self.pipeline * self.chunks)]
        sizes[0] -= layers_per_end
        sizes[-1] -= layers_per_end
        return tuple(sizes)

    @property
    def workers(self) -> int:
        """Return the number of workers of a replica: ``t c d k``."""
        return self.model_parallel_workers * self.data

    @property
    def model_parallel_workers(self) -> int:
        """Return the number of workers of a replica that compute the same sequences together: ``t c k``."""
        return self.tensor * self.context * self.pipeline

    @property
    def gradient_workers(self) -> int:
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
    def expert_tensor_workers(self) -> int:
        """Return f, the number of workers that share each matrix of an expert: ``expert_tensor``, or by default t."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    @property
    def expert_group(self) -> range:
        """Return the ranks of the first group that shares a layer's experts."""
        return range(0, self.expert_tensor_workers * self.expert, self.expert_tensor_workers)

    @property
    def expert_gradient_group(self) -> range:
        """Return the ranks of the first group of workers with the same parameters of experts."""
        return range(0, self.tensor * self.gradient_workers, self.expert_tensor_workers * self.expert)

    @property
    def gradient_group(self) -> range:
        """Return the ranks of the first group of workers with the same parameters."""
        return range(0, self.tensor * self.gradient_workers, self.tensor)

    @property
    def pipeline_group(self) -> range:
        """Return the ranks of the first pipeline."""
        stride = self.tensor * self.gradient_workers
        return range(0, stride * self.pipeline, stride)

    def replica_group(self, workers: int) -> range:
        """Return the ranks of the first worker of each replica among P workers."""
        return range(0, workers, self.workers)

    def replicas(self, workers: int) -> int:
        """Return the number of replicas that P workers form; raise ``SpecError`` if some workers are left over."""
        if workers % self.workers:
            expected = f"a multiple of {self.workers}, the workers of a replica by layout ({self.describe()})"
            raise SpecError("workers", workers, expected)
        return workers // self.workers

    def check(self, model: Model) -> ModelShape:
        """Return the model as a `ModelShape` after a check that this layout can distribute it.

        Raises:
            SpecError: the model is no transformer, or the layout does not divide its sizes.
        """
        if not isinstance(model, ModelShape):
            name = next(name for name in DEGREES if getattr(self, name) > 1)  # a layout of one worker is not checked
            expected = f"1, as {model.name} is a module: a transformer by name, config or fields can be laid out"
            raise SpecError(f"layout.{name}", getattr(self, name), expected)
        self._check_heads(model)
        has_dense_mlp = model.experts == 1 or model.dense_layers > 0
        if has_dense_mlp:
            expected = f"a divisor of the hidden width of {model.name}, {model.hidden_width:,}"
            require(model.hidden_width % self.tensor == 0, "layout.tensor", self.tensor, expected)
        if model.experts > 1 and model.expert_width % self.expert_tensor_workers:
            name = "tensor" if self.expert_tensor is None else "expert_tensor"
            expected = f"a divisor of the hidden width of {model.name}, {model.expert_width:,}"
            raise SpecError(f"layout.{name}", self.expert_tensor_workers, expected)
        expected = f"a divisor of the sequence of {model.sequence:,} tokens"
        require(model.sequence % self.context == 0, "layout.context", self.context, expected)
        expected = f"at most the {model.layers} layers of {model.name}"
        require(self.pipeline <= model.layers, "layout.pipeline", self.pipeline, expected)
        split_layers = model.layers + (2 if self.ends_as_layers else 0)
        if not self.chunk_layers and self.pipeline * self.chunks > split_layers:
            limit, ends = split_layers // self.pipeline, " with the ends" if self.ends_as_layers else ""
            raise SpecError("layout.chunks", self.chunks, f"at most {limit}: there are {split_layers} layers{ends}")
        if self.chunk_layers and sum(self.chunk_layers) != model.layers:
            expected = f"numbers whose sum is {model.layers}, the layers of {model.name}"
            raise SpecError("layout.chunk_layers", list(self.chunk_layers), expected)
        label = f"a divisor of the {model.experts} experts" if model.experts > 1 else "1, as there are no experts"
        require(model.experts % self.expert == 0, "layout.expert", self.expert, f"{label} of {model.name}")
        return model

    def _check_heads(self, model: ModelShape) -> None:
        """Raise ``SpecError`` unless the workers can share attention's heads evenly."""
        for label, heads in (("heads", model.heads), ("heads of keys", model.kv_heads or model.heads)):
            if heads % self.tensor:
                raise SpecError("layout.tensor", self.tensor, f"a divisor of the {label} of {model.name}, {heads:,}")
            if self.context_by == "all-to-all" and heads % (self.tensor * self.context):
                expected = f"such that tensor times context divides the {label} of {model.name}, {heads:,}"
                raise SpecError("layout.context", self.context, expected)

    def describe(self) -> str:
        """Return the degrees of parallelism above 1 as text: ``tensor 8, pipeline 4``."""
        parts = [f"{name} {getattr(self, name)}" for name in DEGREES if getattr(self, name) > 1]
        if self.expert_tensor is not None:
            parts.append(f"expert tensor {self.expert_tensor}")
        if self.context_by == "all-to-all":
            parts.append("context by all-to-all")
        if self.ends_as_layers:
            parts.append("ends as layers")
        if self.chunk_layers:
            parts.append(f"layers {'+'.join(map(str, self.chunk_layers))}")
        return ", ".join(parts) if parts else "one worker"

    @property
    def changed_fields(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, by name."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value != field.default}


def possible_layouts(
    model: ModelShape, workers: int, *, max_tensor: int = 8, max_pipeline: int = 64
) -> Iterator[Layout]:
    """Yield all layouts of a model by tensor, data, pipeline and expert parallelism with which P workers form replicas.

    With expert parallelism each expert's matrices are whole on a worker, as most users of Megatron-LM have it; without,
    the tensor-parallel workers split them like all matrices.

    Args:
        workers: P.
        max_tensor: largest number of workers that share a matrix, usually the workers of a node.
        max_pipeline: largest number of stages.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> [layout.describe() for layout in possible_layouts(MODELS["gpt2"], 4, max_tensor=2, max_pipeline=1)]
    ['one worker', 'data 2', 'data 4', 'tensor 2', 'tensor 2, data 2']
    """
    for tensor in _divisors(workers, max_tensor):
        for stages in _divisors(workers // tensor, min(max_pipeline, model.layers)):
            for data in _divisors(workers // (tensor * stages), workers):
                for expert in _divisors(tensor * data, model.experts):
                    expert_tensor = 1 if expert > 1 and tensor > 1 else None
                    layout = Layout(tensor, data=data, pipeline=stages, expert=expert, expert_tensor=expert_tensor)
                    try:
                        layout.check(model)
                    except SpecError:  # the layout does not divide the model
                        continue
                    yield layout


def _divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number that are at most ``limit``."""
    return [divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0]


GIVEN, STAGES_INSIDE, REPLICAS_INSIDE = "given", "stages-inside", "replicas-inside"

MESSAGE_BYTES = 8 * 2**20
"""Size of a message by which lines between places are compared: that of an activation."""


def position_count(network: Network, ranks: int) -> int:
    """Return the number of positions for ranks on a network: all workers of a matrix, or else one for each rank."""
    return network.workers if isinstance(network, Matrix) else ranks


def positions_by_place(network: Network, ranks: int, nbytes: float) -> Ints:
    """Return the positions of a network, ``(N,)``, in an order in which positions with fast lines are neighbours.

    A position of a matrix is one of its workers; their places are in the order of `place_path`. If there are more
    positions than ranks, the positions with the slowest lines remain unused and come last.

    Args:
        network: a matrix; the positions of any other network stay in order.
        nbytes: n, bytes of a message.
    """
    if not isinstance(network, Matrix):
        return np.arange(ranks)
    place_by_position = np.array(network.ranks)
    there_and_back_s = _there_and_back_s(network, nbytes)
    used_by_place = np.bincount(place_by_position, minlength=len(there_and_back_s))  # number of positions
    for _ in range(network.workers - ranks):  # leave out a position of the place with the slowest lines to the others
        others_by_place = used_by_place - np.eye(len(used_by_place), dtype=np.int64)  # row i: without one at place i
        total_s = (others_by_place * there_and_back_s).sum(axis=1)
        used_by_place[np.argmax(np.where(used_by_place > 0, total_s, -1.0))] -= 1
    is_used = np.zeros(network.workers, dtype=bool)
    for place, count in enumerate(used_by_place.tolist()):
        is_used[np.flatnonzero(place_by_position == place)[:count]] = True
    index_in_path = np.argsort(place_path(network, nbytes))  # by place: argsort inverts a permutation
    return np.lexsort((index_in_path[place_by_position], ~is_used))  # used positions first, each part along the path


def _there_and_back_s(network: Matrix, nbytes: float) -> NDArray[np.float64]:
    """Return the seconds of n bytes from place i to j and of n bytes back, ``(S, S)``; 0 if no line joins them."""
    one_way_s = np.zeros((len(network.lines), len(network.lines)))
    for i, row in enumerate(network.lines):
        for j, line in enumerate(row):
            if line is not None:
                one_way_s[i, j] = float(line.latency_s + nbytes / line.goodput_bytes_per_s)
    return one_way_s + one_way_s.T


def place_path(network: Matrix, nbytes: float) -> list[int]:
    """Return all places of a network in an order with fast lines between neighbours, by greedy insertion.

    Each place is inserted where it lengthens the path least. The length of a line is the seconds of n bytes both ways.
    """
    length_s = _there_and_back_s(network, nbytes)
    path = [0]
    for place in range(1, len(length_s)):
        added_lengths_s = []  # by index of the insertion
        for index in range(len(path) + 1):
            neighbours = path[max(index - 1, 0) : index + 1]  # one at the ends of the path, else two
            added_s = sum(length_s[place, neighbour] for neighbour in neighbours)
            if len(neighbours) == 2:  # the place replaces the line between them
                added_s -= length_s[neighbours[0], neighbours[1]]
            added_lengths_s.append(added_s)
        path.insert(int(np.argmin(added_lengths_s)), place)
    return path if path[0] <= path[-1] else path[::-1]  # both directions are as long; the lower end comes first


def ruled_positions(rule: str, ordered: Ints, stages: int, replicas: int, stage_workers: int = 1) -> Ints:
    """Return the position on a network of each rank of D replicas of K stages by a placement rule, ``(D K w,)``.

    Rank (r K + k) w + i is worker i of stage k of replica r.

    Args:
        rule: ``stages-inside`` makes a replica's stages neighbours, ``replicas-inside`` a stage's replicas.
        ordered: all positions, neighbours side by side, ``(N,)``, by `positions_by_place`.
        stages: K.
        replicas: D.
        stage_workers: w, workers of a stage, which are always neighbours.

    >>> [ruled_positions(rule, np.arange(4), 2, 2).tolist() for rule in (STAGES_INSIDE, REPLICAS_INSIDE)]
    [[0, 1, 2, 3], [0, 2, 1, 3]]
    """
    chosen = ordered[: stages * replicas * stage_workers]
    if rule == STAGES_INSIDE:
        return chosen
    by_stage = chosen.reshape(stages, replicas, stage_workers)
    return by_stage.swapaxes(0, 1).ravel()  # in the order of the ranks


def placed_network(network: Network, rule: str, layout: Layout, workers: int) -> Network:
    """Return a network of places with its workers reordered by a placement rule; other networks stay as they are.

    Args:
        rule: ``given``, ``stages-inside`` or ``replicas-inside``.
        workers: P, a multiple of the replica's workers.
    """
    # A matrix of too few workers is refused later, by `Matrix.sizes`.
    if rule == GIVEN or not isinstance(network, Matrix) or workers > network.workers:
        return network
    ordered = positions_by_place(network, workers, MESSAGE_BYTES)
    replicas, stage_workers = workers // layout.workers, layout.workers // layout.pipeline
    positions = ruled_positions(rule, ordered, layout.pipeline, replicas, stage_workers)
    unused_positions = np.setdiff1d(ordered, positions)
    place_by_rank = [network.ranks[position] for position in (*positions, *unused_positions)]
    return replace(network, ranks=tuple(place_by_rank))


def placements_of(network: Network, layout: Layout, workers: int) -> tuple[str, ...]:
    """Return the placement rules that give different networks for a layout, ``given`` first."""
    rule_by_network: dict[Network, str] = {}
    for rule in (GIVEN, STAGES_INSIDE, REPLICAS_INSIDE):
        # Of rules that give the same network the first remains.
        rule_by_network.setdefault(placed_network(network, rule, layout, workers), rule)
    return tuple(rule_by_network.values())
