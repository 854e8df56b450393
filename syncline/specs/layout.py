"""Specs of a replica on workers: its layout (kinds of parallelism), the placement of ranks, the memory of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from syncline.costmodel import Activations, Precision
from syncline.costmodel.compute.model_shape import Model
from syncline.costmodel.compute.transformer_operations import Module
from syncline.costmodel.layouts.layout import CONTEXTS, ContextBy, Layout
from syncline.costmodel.layouts.memory import ActivationPolicy
from syncline.costmodel.traffic.sharded import Sharding, WeightMessages
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, refusal, refusals
from syncline.specs.cluster.clusters import HardwareField

LAYOUT_EXAMPLE = "tensor=8,pipeline=4, or fields, as in {tensor: 8, pipeline: 4}"

VALUE_OF_WORD: dict[str, Any] = {"true": True, "false": False} | {name: name for name in CONTEXTS}
"""Values of the fields of a layout that are no numbers, by their text."""

Ways = Annotated[int, Field(ge=1, strict=True)]


class LayoutSpec(Spec):
    """The layout of a replica: the number of workers for each kind of parallelism; by default one worker.

    ``tensor``: workers that share each matrix. ``context``: workers that share each sequence. ``data``: workers that
    see different sequences and average their gradients in every step. ``pipeline``: stages, each with ``chunks``
    chunks. ``expert``: workers that share the experts of a layer. ``expert_tensor``: workers that share an expert's
    matrices (Megatron-LM's ``expert_tensor_parallel_size``; by default ``tensor``). ``copies``: number of copies of the
    sharded states among ``context x data`` workers; the workers of a copy are neighbours (HSDP). ``context_by``:
    collectives of context parallelism, ``gathers`` of keys and values or ``all-to-all`` of heads (Ulysses).
    ``ends_as_layers``: whether the embedding and the loss count as a layer each when layers are split into chunks.
    ``chunk_layers``: the number of layers of each chunk, in the order of the layers, in place of an even split.
    ``tensor=8,pipeline=4`` is short for ``{tensor: 8, pipeline: 4}``.
    """

    tensor: Ways = 1
    context: Ways = 1
    data: Ways = 1
    pipeline: Ways = 1
    expert: Ways = 1
    chunks: Ways = 1
    copies: Ways = 1
    ends_as_layers: bool = False
    chunk_layers: tuple[Annotated[int, Field(ge=0, strict=True)], ...] = ()
    expert_tensor: Ways | None = None
    context_by: ContextBy = "gathers"

    @model_validator(mode="before")
    @classmethod
    def _expand_text(cls, value: Any) -> Any:
        return layout_fields(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_layout(self) -> LayoutSpec:
        """Refuse what the cost model's `Layout` refuses, such as ``copies`` that do not divide their workers."""
        with refusals("layout."):
            self.build()
        return self

    def build(self) -> Layout:
        """Return the layout as the cost model's `Layout`."""
        return Layout(**dict(self))

    def check(self, model: Model, workers: int) -> None:
        """Refuse a layout that does not divide a model or the workers."""
        layout = self.build()
        if layout.workers == 1:  # nothing is divided, so that any model will do
            return
        with refusals():
            layout.check(model)
            layout.replicas(workers)


def layout_fields(text: str, path: str = "") -> dict[str, Any]:
    """Return the fields of a layout such as ``tensor=8,pipeline=4``, or of its YAML mapping in braces.

    A text of another form is refused: by a `SpecError` if ``path`` names the field, else, for a validator of pydantic,
    by a `PydanticCustomError`.
    """
    if text.lstrip().startswith("{"):
        from syncline.files import parse_yaml

        with suppress(ValueError):
            mapping = parse_yaml(text)
            if isinstance(mapping, dict):
                return mapping
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in LayoutSpec.model_fields and value in VALUE_OF_WORD:
            fields[name] = VALUE_OF_WORD[value]
        elif name in LayoutSpec.model_fields and value.isdecimal():
            fields[name] = int(value)
        else:
            raise SpecError(path, text, LAYOUT_EXAMPLE) if path else refusal("", text, LAYOUT_EXAMPLE)
    return fields


PlacementRule = Literal["given", "stages-inside", "replicas-inside", "search"]
"""``given``: rank r K + k of stage k of replica r lies where the network says. ``stages-inside``: the stages of a
replica are neighbours, so that replicas average across places. ``replicas-inside``: the replicas of a stage are
neighbours, so that stages send across places. ``search``: the fastest placement that a local search finds.
"""

PLACEMENT_RULES: tuple[str, ...] = get_args(PlacementRule)

PLACEMENT_EXAMPLE = (
    f"one of {', '.join(PLACEMENT_RULES)}, or the place of each rank: names of a matrix's places, or positions from 0"
)


def _parse_placement(value: Any) -> str | tuple[str | int, ...]:
    """Return the name of a rule, or the place of each rank as a tuple; refuse other values."""
    if isinstance(value, str):
        if value not in PLACEMENT_RULES:
            raise refusal("", value, one_of(PLACEMENT_RULES, value) + "; or the place of each rank")
        return value
    if not isinstance(value, Sequence) or not value:
        raise refusal("", value, PLACEMENT_EXAMPLE)
    has_names = all(isinstance(entry, str) for entry in value)
    has_positions = all(isinstance(entry, int) and entry is not True for entry in value)  # True is an int in Python
    if not has_names and not has_positions:
        raise refusal("", value, PLACEMENT_EXAMPLE)
    return tuple(value)


PlacementField = Annotated[Any, BeforeValidator(_parse_placement)]
"""A rule's name, or the place of each rank: names of a matrix's places, or positions on the network from 0."""


def positions_of(placement: Sequence[str | int], ranks: int, places: Sequence[str] | None) -> list[int]:
    """Return the position of each rank on a network, or raise a `SpecError` if the placement does not fit the network.

    Args:
        placement: the name of a place, or the position from 0, of each rank.
        places: name of the place at each position of the network; None if its positions have no names.
    """
    if len(placement) != ranks:
        raise SpecError("placement", len(placement), f"an entry for each of the {ranks} ranks (stages times replicas)")
    positions = [entry for entry in placement if isinstance(entry, int)]
    if positions:
        if len(set(positions)) < ranks or min(positions) < 0:
            raise SpecError("placement", positions, "different positions, from 0")
        return positions
    if places is None:
        raise SpecError("placement", placement[0], "positions from 0: only a matrix has places with names")
    free_positions: dict[str, list[int]] = {}  # by place
    for position, place in enumerate(places):
        free_positions.setdefault(place, []).append(position)
    for name in map(str, placement):
        if name not in free_positions:
            raise SpecError("placement", name, one_of(tuple(free_positions), name))
        if not free_positions[name]:
            raise SpecError("placement", name, f"at most {list(places).count(name)} ranks in {name}, its workers")
        positions.append(free_positions[name].pop(0))
    return positions


class MemorySpec(Spec):
    """The memory of a worker: how it is counted, and what a projection changes if it does not fit.

    ``precision``: ``fp32``, or ``mixed`` (16-bit weights, fp32 copies, gradients and states); by default the number
    format of gradients decides. ``activations`` of transformers: ``stored``, ``selective``, ``recomputed``, null (not
    counted), or ``auto`` (``selective``, and ``recomputed`` where nothing fits otherwise). ``recomputed_layers``:
    number of first layers of each chunk that ``recomputed`` runs again (Megatron-LM's ``block``), or ``fewest``, the
    fewest with which a step fits; by default all. ``layers_per_checkpoint``: number of consecutive recomputed layers
    that share one kept input (Megatron-LM's ``uniform``). ``offloaded_layers``: number of layers of each chunk whose
    ``selective`` activations wait in the host's memory. ``recomputed_modules``: modules of each ``selective`` layer
    that run again, by Megatron-LM's names. ``micro_batches``: number of micro-batches of a step; by default the
    smallest number that fits. ``sharding`` of data parallelism: ``none``, ``optimizer``, ``gradients``, ``full``
    (ZeRO's stages), or ``auto`` (the least sharding that fits). ``weights``: with ``optimizer`` and ``gradients``, how
    updated weights reach the other workers: ``prefetched`` (gathered layer by layer before their use), or after the
    update by ``gathers``, or with ``optimizer`` by ``broadcasts`` of each worker's tensors. ``gradients``: format in
    which gradients accumulate, ``fp32`` or ``bf16``. ``hardware``: machine whose memory is the limit; by default that
    of ``compute``.
    """

    precision: Precision | None = None
    activations: Literal["auto", Activations] | None = "auto"
    recomputed_layers: Annotated[int, Field(ge=1, strict=True)] | Literal["fewest"] | None = None
    layers_per_checkpoint: int = Field(default=1, ge=1, strict=True)
    offloaded_layers: int = Field(default=0, ge=0, strict=True)
    recomputed_modules: tuple[Module, ...] = ()
    micro_batches: int | None = Field(default=None, ge=1)
    sharding: Literal["auto", Sharding] = "auto"
    weights: WeightMessages = "prefetched"
    gradients: Literal["fp32", "bf16"] = "fp32"
    hardware: HardwareField | None = None

    @model_validator(mode="after")
    def _check_activations(self) -> MemorySpec:
        """Refuse numbers of layers that the policy for activations does not use."""
        for name in ("recomputed_layers", "layers_per_checkpoint"):
            value = getattr(self, name)
            is_default = value in (None, 1)
            if not is_default and (self.activations not in ("auto", "recomputed") or self.offloaded_layers):
                expected = "memory.activations of recomputed or auto, and no offloaded layers"
                raise refusal(name, value, expected)
        for name in ("offloaded_layers", "recomputed_modules"):
            value = getattr(self, name)
            if value and self.activations not in ("auto", "selective"):
                raise refusal(name, value, "memory.activations of selective as well")
        return self

    def policies(self, layers: int) -> tuple[ActivationPolicy | None, ...]:
        """Return the policies for activations to try in order, until a step fits.

        Args:
            layers: number of layers of the longest chunk of a stage.
        """
        if self.activations is None:
            return (None,)
        modules = self.recomputed_modules
        if self.offloaded_layers:
            offloaded = min(layers, self.offloaded_layers)
            return (ActivationPolicy("selective", offloaded_layers=offloaded, modules=modules),)
        recomputed_layers: Sequence[int | None]  # None: all layers
        if self.recomputed_layers == "fewest":
            recomputed_layers = [*range(1, layers), None]
        else:
            recomputed_layers = [self.recomputed_layers]
        recomputed = [ActivationPolicy("recomputed", num, self.layers_per_checkpoint) for num in recomputed_layers]
        if self.activations == "auto":
            return (ActivationPolicy("selective", modules=modules), *recomputed)
        if self.activations == "recomputed":
            return tuple(recomputed)
        return (ActivationPolicy(self.activations, modules=modules),)

    def memory_precision(self, number_format: str) -> Precision:
        """Return the precision of weights, gradients and states for this number format of gradients."""
        return self.precision or ("fp32" if number_format == "fp32" else "mixed")
