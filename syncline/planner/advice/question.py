"""The question of advice, with the source of every default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from syncline.costmodel import Hardware, ModelShape, Network
from syncline.costmodel.prices import Prices
from syncline.costmodel.scaling.hyperparameters import best_batch_tokens
from syncline.errors import SpecError
from syncline.fields import MANY
from syncline.methods import MethodBase, method_of, named
from syncline.planner.projection.projections import names_of
from syncline.questions.advise import Advise
from syncline.specs import hardware as hardware_of
from syncline.specs import named_cluster
from syncline.specs.cluster.networks import network as network_of
from syncline.specs.failures import FailuresSpec, check_workers, failures_of
from syncline.specs.models import transformer
from syncline.specs.prices import parse_prices
from syncline.units import parse_count, parse_seconds

TOKENS_PER_PARAMETER = 20.0
"""Default tokens of a training, per parameter; see `TOKENS_SOURCE`."""

TOKENS_SOURCE = "20 per parameter (Hoffmann et al., 2022; the fits of Charles et al., 2025, are along it)"

BATCH_SOURCE = (
    "between the best of data parallelism ({:,.0f}) and of DiLoCo with 2 replicas ({:,.0f}) by the fits of Charles et "
    "al. (2025), Tables 9 and 10"
)


def default_batch(parameters: float, workers: int, sequence: int) -> int:
    """Return a batch in tokens that fits of losses cover for data parallelism and DiLoCo alike.

    It is the geometric mean of the two best batches, rounded to the nearest power of two of whole sequences for each
    worker, or of sequences for all workers if there are fewer sequences than workers.

    >>> default_batch(6.7e9, 64, 2048)
    524288
    """
    wanted = math.sqrt(best_batch_tokens(parameters) * best_batch_tokens(parameters, 2))
    unit = workers * sequence if wanted >= workers * sequence else math.lcm(workers, sequence)
    return unit * 2 ** max(0, round(math.log2(wanted / unit)))


def whole_batch(wanted: float, workers: int, sequence: int) -> int:
    """Return the nearest batch of whole sequences: an even number for each worker from eight on, else one or more each.

    With fewer sequences than workers, it is the nearest batch that both tokens and sequences divide.

    >>> whole_batch(4e6, 64, 2048), whole_batch(100e3, 64, 2048)
    (3932160, 100352)
    """
    sequence_each = workers * sequence
    unit = (
        2 * sequence_each
        if wanted >= 8 * sequence_each
        else sequence_each
        if wanted >= sequence_each
        else math.lcm(workers, sequence)
    )
    return unit * max(1, round(wanted / unit))


@dataclass(frozen=True)
class AdviceQuestion:
    """A question for advice.

    Args:
        model: a transformer, with the sequence that it is trained on.
        network: network that joins the workers.
        hardware: hardware of each worker.
        workers: P, the number of all workers.
        batch_tokens: tokens of a step of all workers: a multiple of P and of the sequence.
        tokens: D, the tokens of data parallelism; other methods train on as many as they need for the same loss.
        target_loss: loss to which all methods train, in nats per token, in place of ``tokens``.
        budget: largest cost of a plan, in the currency of the prices.
        deadline_s: longest time of a plan, in seconds.
        prices: prices of machines, electricity and traffic; without them only energy is reported.
        extrapolate: whether to predict losses outside the range that the fits have seen.
        methods: methods between replicas; empty: all of `syncline.planner.advice.plans.candidate_methods`.
        defaults: the defaults used, a line each with its source.
        failures: failure model of the machines; None: nothing fails.

    Raises:
        SpecError: an invalid number, or a budget without prices.
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
    defaults: tuple[str, ...] = ()
    failures: FailuresSpec | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "batch_tokens", "tokens", "target_loss", "budget", "deadline_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SpecError(name.removesuffix("_s"), value, "a positive number")
        unit = math.lcm(self.workers, self.model.sequence)
        if self.batch_tokens % unit:
            expected = f"a multiple of {unit:,}: {self.workers:,} workers, sequences of {self.model.sequence:,} tokens"
            raise SpecError("batch_tokens", self.batch_tokens, expected)
        if self.budget is not None and self.prices is None:
            raise SpecError("budget", self.budget, "prices beside it: a list in YAML, or the name of one")

    @property
    def sequence(self) -> int:
        """Return the number of tokens of a training sequence."""
        return self.model.sequence

    @property
    def tokens_per_worker(self) -> int:
        """Return a worker's tokens in a step: the batch over P."""
        return self.batch_tokens // self.workers

    @property
    def steps(self) -> int:
        """Return the number of steps of a training on ``tokens``."""
        return max(1, round(self.tokens / self.batch_tokens))

    def on(self, network: Network, workers: int | None = None) -> AdviceQuestion:
        """Return the same question on another network, or with other workers and the same batch."""
        return replace(self, network=network, workers=self.workers if workers is None else workers)


def advice_question(question: Advise) -> AdviceQuestion:
    """Return the question with every default, name and unit resolved.

    The batch is rounded to whole sequences; `default_batch` is its default.

    Raises:
        SpecError: a value is invalid; the error names the field and the accepted values.
    """
    shape = transformer(question.model)
    resolved = None if question.cluster is None else named_cluster(question.cluster)
    if resolved is not None and question.network is not None:
        raise SpecError("network", str(question.network), f"none beside a cluster, which has its own ({resolved.name})")
    joined = resolved.network if resolved else network_of(question.network) if question.network is not None else None
    if joined is None:
        raise SpecError("cluster", None, "a bundled one's name, or a .yaml file with a cluster's sections")
    machine = (
        hardware_of(question.hardware) if question.hardware is not None else resolved.hardware if resolved else None
    )
    if machine is None:
        raise SpecError("hardware", None, "what computes, as a100: the cluster does not say")
    count = question.workers if question.workers is not None else resolved.workers if resolved else None
    if count is None:
        raise SpecError("workers", None, "how many: the cluster does not say")
    if not 1 <= count <= MANY:
        raise SpecError("workers", count, f"a number of workers from 1 to {MANY:,}")
    joined.among(count)
    failing = _failing(question, count)
    defaults: list[str] = list(_costless(failing))
    if question.sequence is None:
        defaults.append(f"sequence: {shape.sequence:,} tokens, as {shape.name} has it ({shape.source or 'as given'})")
    else:
        shape = replace(shape, sequence=question.sequence)
    trained = (
        TOKENS_PER_PARAMETER * shape.parameters if question.tokens is None else parse_count(question.tokens, "tokens")
    )
    if question.tokens is None:
        defaults.append(f"tokens: {trained:.3g}, {TOKENS_SOURCE}")
    if question.batch_tokens is None:
        batch = default_batch(shape.parameters, count, shape.sequence)
        best_batches = best_batch_tokens(shape.parameters), best_batch_tokens(shape.parameters, 2)
        defaults.append(f"batch: {batch:,} tokens in a step, {BATCH_SOURCE.format(*best_batches)}")
    else:
        wanted = parse_count(question.batch_tokens, "batch_tokens")
        if not wanted > 0:
            raise SpecError("batch_tokens", question.batch_tokens, "a positive number")
        batch = whole_batch(wanted, count, shape.sequence)
        if batch != wanted:
            defaults.append(f"batch: {batch:,} tokens in a step, the nearest to {wanted:,.0f} in whole sequences")
    return AdviceQuestion(
        shape,
        joined,
        machine,
        count,
        batch,
        trained,
        question.target_loss,
        None if question.budget is None else parse_count(question.budget, "budget"),
        None if question.deadline is None else parse_seconds(question.deadline, "deadline"),
        None if question.prices is None else parse_prices(question.prices),
        question.extrapolate,
        tuple(
            method_of(named(name, "method") if isinstance(name, str) else name)
            for name in names_of(question.methods or ())
        ),
        tuple(defaults),
        failing,
    )


def _failing(question: Advise, workers: int) -> FailuresSpec | None:
    """Return the failures of the question, after a check that their workers exist."""
    failing = failures_of(question)
    if failing is not None:
        check_workers(failing, workers)
    return failing


def _costless(failing: FailuresSpec | None) -> Iterator[str]:
    """Yield a line for each cost of failures that is 0 because the inputs do not set it."""
    if failing is None:
        return
    if not (failing.restart or failing.timeout):
        yield "restart: a failure costs no time but that of lost steps (--restart)"
    if not failing.checkpoint.seconds and failing.checkpoint.bandwidth is None:
        yield "checkpoint: it takes no time (--checkpoint, or the --bandwidth of the storage)"
