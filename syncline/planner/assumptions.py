"""The assumptions of an answer: every value that changes it, where the value comes from, and their block of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from syncline.columns import distinct_by_key, first_of
from syncline.costmodel import ModelShape, Network
from syncline.costmodel.collectives.table import hivemind_on, knows_library
from syncline.costmodel.compute.update_work import UpdateKernels
from syncline.costmodel.failures import REPAIR_S, REPAIR_SOURCE
from syncline.costmodel.scaling.published import batch_source, default_batch
from syncline.methods import MethodBase
from syncline.planner.periods import PRESET as SAME_AS_PRESET
from syncline.planner.periods import exchanges_now_and_then, has_own_period, method_from, period_of
from syncline.specs import ProjectSpec
from syncline.specs.layout import MemorySpec
from syncline.units import format_seconds, parse_count

GIVEN, DEFAULT, PRESET, FITS = "given", "default", "preset", "published fits"
"""Origins of a value: the user or the spec, Syncline, a preset that the user or the spec names, fits of losses."""

SPEC_PERIODS, METHOD_PERIODS = "the spec's", "the methods'"
"""Origins of periods: the spec, if no option names methods; the methods themselves, if all exchange in every step."""


@dataclass(frozen=True)
class Assumption:
    """A value that changes the answer.

    Args:
        value: the value in the unit, or a list or tuple of values if settings differ.
        unit: unit of the value; empty for words.
        text: the value for people.
        origin: `GIVEN`, `DEFAULT`, `PRESET`, `FITS`, or a few words.
        source: publication behind the value; empty if there is none.
    """

    name: str
    value: Any
    unit: str
    text: str
    origin: str
    source: str = ""

    def record(self) -> dict[str, Any]:
        """Return the fields without the text for people."""
        return {name: value for name, value in asdict(self).items() if name != "text"}


ASSUMPTION_COLUMNS = ("method", "sharding", "micro_batches", "repair_s", "spares")
"""Columns of a projection's rows from which assumptions are made."""


def option_origins(
    methods: Sequence[Any] | None,
    period: str | int | None = None,
    sequence: int | None = None,
    batch_tokens: str | float | None = None,
) -> dict[str, str]:
    """Return the origins of those of the period, the sequence and the batch that options set, by name.

    Args:
        methods: methods of the options, as `methods_at_period` takes them; empty: the spec's methods.
        period: period of the options; None: none.
        sequence: tokens of a sequence from the options; None: the model's.
        batch_tokens: tokens of a step from the options; None: the spec's.
    """
    origins = {} if sequence is None else {"sequence": GIVEN}
    if batch_tokens is not None:
        origins["batch"] = nearest_text(parse_count(batch_tokens, "batch_tokens"))
    if period is not None:
        origins["period"] = PRESET if period == SAME_AS_PRESET else GIVEN
    elif methods:
        periodic_methods = [method for method in methods if exchanges_now_and_then(method_from(method))]
        period_origins = dict.fromkeys(GIVEN if has_own_period(method) else DEFAULT for method in periodic_methods)
        origins["period"] = ", ".join(period_origins) or METHOD_PERIODS
    return origins


def projection_assumptions(
    specs: Sequence[ProjectSpec], rows: Sequence[Mapping[str, Any]] = (), origins: Mapping[str, str] | None = None
) -> list[Assumption]:
    """Return the assumptions of projections, each once, with the values of all specs.

    Args:
        rows: rows of the specs, with memory plans and repairs of failed machines; only `ASSUMPTION_COLUMNS` are used.
        origins: origins of the period, the sequence and the batch, of `option_origins`, if options set them.
    """
    origins = origins or {}
    by_name: dict[str, dict[str, Assumption]] = {}
    keys: set[tuple[Any, ...]] = set()
    for spec in specs:
        key = (id(spec.model), id(spec.compute), id(spec.memory), spec.placement, spec.precision, spec.overlap,
               spec.algorithm)  # fmt: skip
        # Specs with one key differ in the number of workers, on which the batch alone depends.
        spec_assumptions = [spec_batch(spec, origins)] if key in keys else _spec_assumptions(spec, origins)
        for assumption in spec_assumptions:
            by_name.setdefault(assumption.name, {})[assumption.text] = assumption
        keys.add(key)
    methods = {id(method): method for spec in specs for method in spec.methods}.values()
    periods = period_assumption(methods, origins.get("period", SPEC_PERIODS))
    for assumption in (periods, *_memory_plan_assumptions(rows), *_repair_assumptions(rows)):
        by_name.setdefault(assumption.name, {})[assumption.text] = assumption
    return [_join_assumptions(list(variants.values())) for variants in by_name.values()]


def _spec_assumptions(spec: ProjectSpec, origins: Mapping[str, str]) -> Iterable[Assumption]:
    """Yield the assumptions that the fields of a spec decide."""
    model = spec.model
    text = f"{model.name}, {model.parameters:,} parameters"
    source = getattr(model, "source", "") or ""  # a preset has one
    yield Assumption("model", model.name, unit="", text=text, origin=PRESET if source else GIVEN, source=source)
    yield spec_batch(spec, origins)
    if isinstance(model, ModelShape):
        yield sequence_assumption(model, origins.get("sequence"))
    origin = _origin_of_field(spec, "precision")
    machine = spec.compute.hardware or spec.memory.hardware
    if spec.precision is None and machine is not None:  # the number format is that of the machine's peak FLOP/s
        origin = f"the format of the peak of {machine.name}"
    text = f"gradients in {spec.number_format}"
    yield Assumption("wire format", spec.number_format, unit="", text=text, origin=origin)
    text = OVERLAP_TEXTS[spec.overlap]
    if spec.overlap == "ddp":
        hivemind_networks = [network for network in spec.networks if hivemind_on(network) is not None]
        text = _with_exceptions(text, "as a whole after it", hivemind_networks)
    yield Assumption("overlap", spec.overlap, unit="", text=text, origin=_origin_of_field(spec, "overlap"))
    algorithm = spec.algorithm or "auto"
    text = "the fastest for each size" if algorithm == "auto" else algorithm
    if spec.algorithm is None:
        library_networks = [network for network in spec.networks if knows_library(network)]
        text = _with_exceptions(text, "the library's own", library_networks)
    yield Assumption("algorithm", algorithm, unit="", text=text, origin=_origin_of_field(spec, "algorithm"))
    if spec.placement != "given" or "placement" in origins:
        text = PLACEMENT_TEXTS[spec.placement]
        yield Assumption("placement", spec.placement, unit="", text=text, origin=origins.get("placement", GIVEN))
    yield _computing_assumption(spec)
    tensors, compute = model.tensors, spec.compute
    # Updates that take no longer than Adam's are part of the computing.
    if compute.prices_updates and any(method.added_update_s(tensors, compute.machine) > 0 for method in spec.methods):
        text = UPDATE_TEXTS[compute.kernels.updates]
        is_default = compute.optimizer_time is None and compute.kernels.updates == "eager"
        yield Assumption("updates", text, unit="", text=text, origin=DEFAULT if is_default else GIVEN)
    precision = spec.memory.memory_precision(spec.number_format)
    activations = _activation_text(spec.memory)
    yield Assumption("memory", precision, "", f"{precision} precision, {activations}", _origin_of_field(spec, "memory"))


PLACEMENT_TEXTS = {
    "given": "ranks lie where the network says",
    "stages-inside": "the workers of a replica are neighbours, replicas are apart",
    "replicas-inside": "the replicas of a stage are neighbours, stages are apart",
    "search": "another one for each network",
}
"""Phrases for each placement of the ranks."""


def _with_exceptions(text: str, exception: str, networks: Sequence[Network]) -> str:
    """Return a phrase, followed by the exception and the networks on which it holds, if there are any."""
    names = ", ".join(network.name or network.describe() for network in networks)
    return f"{text}; {exception} on {names}" if names else text


def _activation_text(options: MemorySpec) -> str:
    """Return a phrase for the activations that a worker stores, by the memory options."""
    if options.activations is None:
        return "without activations"
    if options.offloaded_layers:
        return f"selective activations, those of {options.offloaded_layers} layers offloaded"
    text = f"{options.activations} activations"
    if options.activations == "auto":
        text = "selective activations, recomputed where nothing fits otherwise"
    if options.recomputed_layers is not None:
        text += f" ({options.recomputed_layers} layers)"
    per_checkpoint = options.layers_per_checkpoint
    return text if per_checkpoint == 1 else f"{text}, {per_checkpoint} layers per checkpoint"


OVERLAP_TEXTS = {
    "ddp": "gradients travel in buckets during the backward pass",
    "none": "workers compute, then communicate",
    "async": "workers wait one step later for what they send after a step",
}
"""Phrases for each overlap."""


def _origin_of_field(spec: ProjectSpec, field: str) -> str:
    """Return the origin of a field of a spec: `DEFAULT` if it has the default value, else `GIVEN`."""
    info = type(spec).model_fields[field]
    return DEFAULT if getattr(spec, field) == info.get_default(call_default_factory=True) else GIVEN


def nearest_text(wanted_tokens: float) -> str:
    """Return the origin of a batch that was rounded to whole sequences, in words."""
    return f"the nearest to {wanted_tokens:,.0f} in whole sequences"


def spec_batch(spec: ProjectSpec, origins: Mapping[str, str]) -> Assumption:
    """Return the tokens of a step of a projection, with their origin; for ``origins`` see `option_origins`."""
    batch_tokens, parameters = spec.batch_tokens, spec.model.parameters
    if spec.tokens_per_worker is not None:
        origin = origins.get("batch", GIVEN)
        if origin == nearest_text(batch_tokens):  # rounding to whole sequences did not change the batch
            origin = GIVEN
        return batch_assumption(batch_tokens, spec.workers, origin)
    by_fits = batch_tokens == default_batch(parameters, spec.workers, spec.model.sequence)
    origin = FITS if by_fits else "a sequence for each replica"
    return batch_assumption(batch_tokens, spec.workers, origin, batch_source(parameters))


def batch_assumption(batch_tokens: int, workers: int, origin: str, source: str = "") -> Assumption:
    """Return the tokens of all workers in a step, as an assumption; each worker has an equal part."""
    text = f"{batch_tokens:,} tokens in a step"
    if workers > 1:
        text += f", {batch_tokens // workers:,} for each of {workers:,} workers"
    return Assumption("batch", batch_tokens, unit="tokens", text=text, origin=origin, source=source)


def sequence_assumption(shape: ModelShape, origin: str | None = None) -> Assumption:
    """Return the tokens of a training sequence, as an assumption; an origin of None is the model."""
    text, source = f"{shape.sequence:,} tokens", ""
    if origin is None:
        origin, source = f"as {shape.name} has it", shape.source
    return Assumption("sequence", shape.sequence, "tokens", text, origin, source)


def _computing_assumption(spec: ProjectSpec) -> Assumption:
    """Return the utilisation of the hardware, or the seconds of a step if the spec has these."""
    compute = spec.compute
    if compute.seconds is not None:
        return Assumption("computing", compute.seconds, unit="s", text=f"{compute.seconds:g} s in a step", origin=GIVEN)
    if compute.batch_times is not None:
        return Assumption("computing", dict(compute.batch_times.times_s), "s", "times by batch size", GIVEN)
    if spec.priced_by_kernels:
        return _kernel_assumption(spec)
    machine = compute.machine  # a spec without seconds or times has one
    share = machine.mfu if compute.mfu is None else compute.mfu
    text = f"{share:.0%} of {machine.peak_flops / 1e12:.4g} TFLOP/s ({machine.precision}) of {machine.name}"
    origin, source = (PRESET, machine.source) if compute.mfu is None else (GIVEN, "")
    return Assumption("utilisation", share, unit="1", text=text, origin=origin, source=source)


UPDATE_TEXTS: dict[UpdateKernels, str] = {
    "eager": "kernels of this package's eager methods, with fp32 products without tensor cores",
    "tf32": "kernels of this package's eager methods, with products in TF32",
    "optimised": "kernels of optimised methods, with products in bf16 or TF32, and QR by Cholesky",
}
"""Phrases for each implementation of updates."""


def _kernel_assumption(spec: ProjectSpec) -> Assumption:
    """Return the kernels of a transformer's step, as an assumption."""
    machine, software = spec.compute.machine, spec.compute.kernels.build()
    assert machine.kernels is not None
    execution = "compiled" if software.compiled else "eager"
    attention = software.attention_on(machine)
    text = f"the kernels of {machine.name}: {spec.product_format} products by shape, {attention} attention, {execution}"
    if machine.power_w is not None:
        text += f", {machine.power_w:g} W"
    default_software = type(spec.compute.kernels)()
    origin = PRESET if spec.compute.kernels == default_software else GIVEN
    return Assumption("computing", text, unit="", text=text, origin=origin, source=machine.kernels.source)


def period_assumption(methods: Iterable[MethodBase], origin: str) -> Assumption:
    """Return the steps between the exchanges of methods, as an assumption."""
    names_by_period = distinct_by_key((period_of(method), method.name) for method in methods)
    periods = tuple(sorted(names_by_period))
    texts = []
    for period in periods:
        steps = "an exchange each step" if period == 1 else f"every {period:,} steps"
        texts.append(f"{steps}: {first_of(names_by_period[period], MOST_NAMED)}")
    return Assumption("period", periods[0] if len(periods) == 1 else periods, "steps", "; ".join(texts), origin)


MOST_NAMED = 6
"""Limit on the methods that a line names."""


SHARDING_TEXTS = {
    "none": "every worker has all states",
    "optimizer": "optimizer states sharded over the workers",
    "gradients": "gradients and optimizer states sharded over the workers",
    "full": "weights, gradients and optimizer states sharded over the workers",
}
"""Phrases for each kind of sharding."""


def _memory_plan_assumptions(rows: Sequence[Mapping[str, Any]]) -> Iterable[Assumption]:
    """Yield the sharding and the micro-batches of the rows, with the methods of each if they differ."""
    for name in ("sharding", "micro_batches"):
        methods_by_value = distinct_by_key((row[name], row["method"]) for row in rows if row.get(name) is not None)
        if not methods_by_value:
            continue
        texts = []
        for value, methods in methods_by_value.items():
            text = SHARDING_TEXTS[value] if name == "sharding" else f"{value:,} in a step"
            texts.append(f"{text} ({first_of(methods, MOST_NAMED)})" if len(methods_by_value) > 1 else text)
        values = list(methods_by_value)
        value_or_values = values[0] if len(values) == 1 else values
        text, origin = "; ".join(texts), "the least that fits into memory"
        yield Assumption(name.replace("_", "-"), value_or_values, unit="", text=text, origin=origin)


def _repair_assumptions(rows: Iterable[Mapping[str, Any]]) -> Iterable[Assumption]:
    """Yield the time to repair a failed machine if the rows are of machines that fail."""
    rows_of_failures = [row for row in rows if row.get("repair_s") is not None]
    if rows_of_failures:  # all rows have the same repairs
        yield repair_assumption(rows_of_failures[0]["repair_s"], rows_of_failures[0]["spares"])


def repair_assumption(repair_s: float, spares: int) -> Assumption:
    """Return the time to repair a failed machine, with its publication if it is the default."""
    text = format_seconds(repair_s)
    if spares:
        text += f"; {spares:,} spare machines replace failed ones at once"
    origin, source = (DEFAULT, REPAIR_SOURCE) if repair_s == REPAIR_S else (GIVEN, "")
    return Assumption("repair", repair_s, unit="s", text=text, origin=origin, source=source)


def _join_assumptions(variants: Sequence[Assumption]) -> Assumption:
    """Return one assumption with the values, texts, origins and sources of several assumptions of one name."""
    if len(variants) == 1:
        return variants[0]
    texts = [assumption.text for assumption in variants[:MOST_VALUES]]
    if len(variants) > MOST_VALUES:
        texts.append(f"{len(variants) - MOST_VALUES} more in --json")
    origins = dict.fromkeys(assumption.origin for assumption in variants)
    sources = dict.fromkeys(assumption.source for assumption in variants if assumption.source)
    values = [assumption.value for assumption in variants]
    return replace(
        variants[0], value=values, text="; ".join(texts), origin=", ".join(origins), source="; ".join(sources)
    )


MOST_VALUES = 4
"""Limit on the values of different settings that a line names."""
