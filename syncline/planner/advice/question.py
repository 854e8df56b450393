"""The question of advice, with the source of every default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from syncline.costmodel import Hardware, ModelShape, Network
from syncline.costmodel.prices import Prices
from syncline.costmodel.scaling.published import batch_source, default_batch, whole_batch
from syncline.errors import SpecError
from syncline.fields import MANY
from syncline.methods import MethodBase
from syncline.planner.assumptions import (
    FITS,
    GIVEN,
    Assumption,
    batch_assumption,
    nearest_text,
    option_origins,
    period_assumption,
    sequence_assumption,
)
from syncline.planner.periods import COMPARED_PERIOD, PRESET, methods_at_period, parse_period
from syncline.planner.projection.pricing import PriceCache
from syncline.planner.projection.projections import names_of
from syncline.questions.projections import Advise
from syncline.specs import hardware as hardware_of
from syncline.specs import named_cluster
from syncline.specs.cluster.clusters import worker_count
from syncline.specs.cluster.hardware import parse_prices
from syncline.specs.cluster.networks import network as network_of
from syncline.specs.failures import FailuresSpec, check_workers, failures_of
from syncline.specs.models import transformer
from syncline.specs.projection import MOST_TOKENS
from syncline.units import parse_count, parse_seconds

TOKENS_PER_PARAMETER = 20.0
"""Default tokens of a training, per parameter; see `TOKENS_SOURCE`."""

TOKENS_SOURCE = "20 per parameter (Hoffmann et al., 2022; the fits of Charles et al., 2025, are along it)"

PERIODS = (COMPARED_PERIOD, 100, 300, 1000)
"""Steps between exchanges to try by default; no fit of losses has seen fewer than 30."""


@dataclass(frozen=True)
class AdviceQuestion:
    """A question for ``syncline advise``: a model, a cluster, a batch, and limits on time and cost.

    Args:
        model: a transformer, with the sequence that it is trained on.
        network: network that joins the workers.
        workers: P, the number of all workers.
        batch_tokens: tokens of a step of all workers: a multiple of P and of the sequence.
        tokens: D, the tokens of data parallelism; other methods train to the same loss.
        target_loss: loss to which all methods train, in nats per token, in place of ``tokens``.
        budget: largest cost of a plan, in the currency of the prices.
        deadline_s: longest time of a plan, in seconds.
        prices: prices of machines, electricity and traffic; without them only energy is reported.
        extrapolate: whether to predict losses outside the range that the fits have seen.
        methods: methods between replicas; empty: all of `syncline.planner.advice.plans.candidate_methods`.
        periods: steps between exchanges to try; plans of unknown loss are compared at the first period. Empty: each
            method has its preset's period.
        assumptions: the sequence, the batch and the tokens, with the origin of each.
        unset_costs: costs of failures that are 0 because the inputs do not set them, a line each.
        failures: failure model of the machines; None: nothing fails.

    Attributes:
        needed_tokens: cache of `syncline.planner.advice.equal_loss.tokens_needed`.
    """

    model: ModelShape
    network: Network
    hardware: Hardware
    workers: int
    batch_tokens: int
    tokens: float
    target_loss: float | None = None
    budget: float | None = None
    deadline_s: float | None = None
    prices: Prices | None = None
    extrapolate: bool = False
    methods: tuple[MethodBase, ...] = ()
    periods: tuple[int, ...] = PERIODS
    assumptions: tuple[Assumption, ...] = ()
    unset_costs: tuple[str, ...] = ()
    failures: FailuresSpec | None = None
    needed_tokens: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _price_cache: PriceCache = field(default_factory=PriceCache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        for name in ("workers", "batch_tokens", "tokens", "target_loss", "budget", "deadline_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SpecError(name.removesuffix("_s"), value, "a positive number")
        unit = math.lcm(self.workers, self.model.sequence)
        if self.batch_tokens % unit:
            expected = f"a multiple of {unit:,}: {self.workers:,} workers, sequences of {self.model.sequence:,} tokens"
            raise SpecError("batch_tokens", self.batch_tokens, expected)
        if self.tokens_per_worker > MOST_TOKENS:
            raise SpecError("batch_tokens", self.batch_tokens, f"at most {MOST_TOKENS:,} tokens for each worker")
        if self.steps > MANY:
            raise SpecError("tokens", self.tokens, f"at most {MANY:,} steps of {self.batch_tokens:,} tokens")
        if self.budget is not None and self.prices is None:
            raise SpecError("budget", self.budget, "prices as well: a list in YAML, or the name of a list")

    @property
    def compared_period(self) -> int | None:
        """Return the steps between exchanges at which plans of unknown loss are compared; None: each has its own."""
        return None if self.methods or not self.periods else self.periods[0]

    @property
    def tokens_per_worker(self) -> int:
        """Return a worker's tokens in a step: the batch over P."""
        return self.batch_tokens // self.workers

    @property
    def steps(self) -> int:
        """Return the number of steps of a training on ``tokens``."""
        return max(1, round(self.tokens / self.batch_tokens))

    def price_cache(self, network: Network) -> PriceCache:
        """Return the cache that all plans share on the question's network; a new one for another network."""
        return self._price_cache if network is self.network else PriceCache()

    def on(self, network: Network, workers: int | None = None) -> AdviceQuestion:
        """Return the question with another network, and with another number of workers if one is given."""
        return replace(self, network=network, workers=self.workers if workers is None else workers)


def advice_question(question: Advise) -> AdviceQuestion:
    """Return the inputs of ``syncline advise`` with all defaults filled in, names looked up and units converted.

    The batch is rounded to whole sequences. Its default is `default_batch`.
    """
    model = transformer(question.model)
    network, hardware, workers = _cluster(question)
    failures = failures_of(question)
    if failures is not None:
        check_workers(failures, workers)
    if question.sequence is not None:
        model = replace(model, sequence=question.sequence)
    sequence = sequence_assumption(model, None if question.sequence is None else GIVEN)
    tokens, batch = _tokens(question, model), _batch(question, model, workers)
    assumptions = [sequence, tokens, batch]
    methods = tuple(methods_at_period(names_of(question.methods or ()), question.period, "method"))
    periods: tuple[int, ...] = PERIODS
    if question.period is not None:
        periods = () if question.period == PRESET else (parse_period(question.period),)
    if methods:
        origins = option_origins(names_of(question.methods or ()), question.period)
        assumptions.append(period_assumption(methods, origins["period"]))
    elif periods and periods != PERIODS:
        text = f"{periods[0]:,} steps, for methods that exchange now and then"
        assumptions.append(Assumption("period", periods[0], unit="steps", text=text, origin=GIVEN))

    return AdviceQuestion(
        model, network, hardware=hardware, workers=workers, batch_tokens=batch.value, tokens=tokens.value,
        target_loss=question.target_loss,
        budget=None if question.budget is None else parse_count(question.budget, "budget"),
        deadline_s=None if question.deadline is None else parse_seconds(question.deadline, "deadline"),
        prices=None if question.prices is None else parse_prices(question.prices), extrapolate=question.extrapolate,
        methods=methods, periods=periods, assumptions=tuple(assumptions), unset_costs=tuple(_unset_costs(failures)),
        failures=failures,
    )  # fmt: skip


def _tokens(question: Advise, model: ModelShape) -> Assumption:
    """Return the tokens of data parallelism; a target loss replaces their text."""
    tokens = TOKENS_PER_PARAMETER * model.parameters
    if question.tokens is not None:
        tokens = parse_count(question.tokens, "tokens")
    text = f"{tokens / 1e9:,.4g} B by data parallelism, the other methods to its loss"
    if question.target_loss is not None:
        text = f"as many as each method needs for a loss of {question.target_loss:g}"
    is_default = question.tokens is None and question.target_loss is None
    origin, source = (FITS, TOKENS_SOURCE) if is_default else (GIVEN, "")
    return Assumption("tokens", tokens, unit="tokens", text=text, origin=origin, source=source)


def _batch(question: Advise, model: ModelShape, workers: int) -> Assumption:
    """Return the tokens of a step of all workers, in whole sequences."""
    if question.batch_tokens is None:
        batch_tokens = default_batch(model.parameters, workers, model.sequence)
        return batch_assumption(batch_tokens, workers, FITS, batch_source(model.parameters))
    wanted_tokens = parse_count(question.batch_tokens, "batch_tokens")
    batch_tokens = whole_batch(wanted_tokens, workers, model.sequence)
    origin = GIVEN if batch_tokens == wanted_tokens else nearest_text(wanted_tokens)
    return batch_assumption(batch_tokens, workers, origin)


def _cluster(question: Advise) -> tuple[Network, Hardware, int]:
    """Return the network, the hardware of each worker and the number of workers, from a cluster or single options."""
    hardware = None
    if question.cluster is not None:
        cluster = named_cluster(question.cluster)
        if question.network is not None:
            expected = f"none with a cluster, which has its own ({cluster.name})"
            raise SpecError("network", str(question.network), expected)
        network, hardware, workers = cluster.network, cluster.hardware, cluster.workers
    elif question.network is not None:
        network = network_of(question.network)
        workers = worker_count(network)
    else:
        raise SpecError("cluster", None, "the name of a bundled one, or a .yaml file with a cluster's sections")
    if question.hardware is not None:
        hardware = hardware_of(question.hardware)
    if hardware is None:
        raise SpecError("hardware", None, "the hardware, such as a100, as the cluster has none")
    workers = workers if question.workers is None else question.workers
    if workers is None:
        raise SpecError("workers", None, "a number, as the cluster has none")
    if not 1 <= workers <= MANY:
        raise SpecError("workers", workers, f"a number of workers from 1 to {MANY:,}")
    network.among(workers)
    return network, hardware, workers


def _unset_costs(failures: FailuresSpec | None) -> Iterator[str]:
    """Yield a line for each cost of failures that is 0 because the inputs do not set it."""
    if failures is None:
        return
    if not (failures.restart_time or failures.detection_timeout):
        yield "restart: a failure costs no time but that of lost steps (--restart)"
    if not failures.checkpoint.write_time and failures.checkpoint.bandwidth is None:
        yield "checkpoint: it takes no time (--checkpoint, or the --bandwidth of the storage)"
