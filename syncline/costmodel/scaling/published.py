"""The published fits of losses and of batch sizes: printed coefficients, with errors recomputed from printed losses.

Charles et al. (2025) print their coefficients and the losses behind them; a refit of the losses reproduces the
coefficients (docs/scaling.md). The errors are those of cross-validation: each size left out in turn, 8 replicas left
out, and the printed fits at 4B and 10B, models that the authors trained afterwards. Their fits are Tables 7, 9 and
10 of "Communication-Efficient Language Model Training Scales Reliably and Robustly: Scaling Laws for DiLoCo"
(arXiv 2503.09799): models of 35M to 2.4B parameters, 20 tokens per parameter, H = 30, sequences of 2,048. The paper
does not print the unit of the batches; read as sequences, they agree with Figure 4, whose axis is in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import require
from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.costmodel.scaling.laws import (
    TOKENS_RATIO,
    AdditiveLaw,
    Drift,
    LossFit,
    MeasuredLoss,
    PowerLaw,
    SeenRange,
    left_out_errors,
    power_law_of,
    printed_losses,
)
from syncline.errors import SpecError, one_of, require_one_of

SEQUENCE = 2048
"""Tokens of a sequence in the paper."""

DDP_BATCH = PowerLaw(0.22592 * SEQUENCE, {"parameters": 0.281})
"""Best batch of data parallelism in tokens; Table 9."""

DILOCO_BATCH = PowerLaw(0.00709 * SEQUENCE, {"parameters": 0.4695, "replicas": 0.3399})
"""Best batch of DiLoCo in tokens, over all replicas; Table 10."""


def best_batch_tokens(parameters: float, replicas: float | None = None) -> float:
    """Return the global batch in tokens with which a training of data parallelism or DiLoCo has the lowest loss.

    Args:
        parameters: parameters of the model; positive.
        replicas: replicas of DiLoCo; None for data parallelism.

    >>> round(best_batch_tokens(1.3e9, 2) / 2048)
    171
    """
    require(parameters > 0, "parameters", parameters, "a positive number")
    if replicas is None:
        return DDP_BATCH.value({"parameters": parameters})
    require(replicas > 0, "replicas", replicas, "a positive number")
    return DILOCO_BATCH.value({"parameters": parameters, "replicas": replicas})


@lru_cache(maxsize=65536)
def default_batch(parameters: float, workers: int, sequence: int) -> int:
    """Return a batch in tokens between the best batches of data parallelism and of DiLoCo with 2 replicas.

    The geometric mean of the two favours neither. It is rounded so that each worker has a power of two of sequences. If
    that is less than one sequence, the batch is a power of two times the least batch of whole sequences that the
    workers can share equally.

    >>> default_batch(6.7e9, 64, 2048)
    524288
    """
    mean_tokens = math.sqrt(best_batch_tokens(parameters) * best_batch_tokens(parameters, replicas=2))
    unit_tokens = workers * sequence  # a sequence for each worker
    if mean_tokens < unit_tokens:
        unit_tokens = math.lcm(workers, sequence)  # whole sequences, and equally many tokens for each worker
    return unit_tokens * 2 ** max(0, round(math.log2(mean_tokens / unit_tokens)))


def batch_source(parameters: float) -> str:
    """Return the source of the default batch as text, with the best batches of data parallelism and DiLoCo."""
    parallel, diloco = best_batch_tokens(parameters), best_batch_tokens(parameters, replicas=2)
    return (
        f"between the best of data parallelism ({parallel:,.0f}) and of DiLoCo with 2 replicas ({diloco:,.0f}) by the "
        "fits of Charles et al. (2025), Tables 9 and 10"
    )


def whole_batch(batch_tokens: float, workers: int, sequence: int) -> int:
    """Return the batch in whole sequences that is nearest to ``batch_tokens``, in tokens.

    Each worker has equally many sequences. If a rounded batch has eight or more for each, their number is even. A batch
    with fewer sequences than workers is a multiple of both the number of workers and the tokens of a sequence.

    >>> whole_batch(4e6, 64, 2048), whole_batch(9 * 64 * 2048, 64, 2048), whole_batch(100e3, 64, 2048)
    (3932160, 1179648, 100352)
    """
    require(0 < batch_tokens < math.inf, "batch_tokens", batch_tokens, "a positive number")
    unit_tokens = workers * sequence  # a sequence for each worker
    if batch_tokens % unit_tokens == 0:
        return int(batch_tokens)
    if batch_tokens >= 8 * unit_tokens:
        unit_tokens *= 2
    elif batch_tokens < unit_tokens:
        unit_tokens = math.lcm(workers, sequence)
    return unit_tokens * max(1, round(batch_tokens / unit_tokens))


CHARLES = "Z. Charles et al., Scaling Laws for DiLoCo (arXiv 2503.09799, 2025)"
DOUILLARD = "A. Douillard et al., Streaming DiLoCo (arXiv 2501.18512, 2025)"
HOFFMANN = "J. Hoffmann et al., Training Compute-Optimal Large Language Models (arXiv 2203.15556, 2022)"
BESIROGLU = "T. Besiroglu et al., Chinchilla Scaling: A replication attempt (arXiv 2404.10102, 2024)"

_C4 = "C4, evaluation loss in nats per token, 32,768 tokens in the vocabulary"
_TUNED = (
    "AdamW (0.9, 0.99), cosine decay to 5%, 1,000 steps of warm-up, weight decay 1/T, gradients clipped to 1, "
    "sequences of 2,048; learning rates and batch the best that were found"
)

CHARLES_DDP = PowerLaw(18.129, {"parameters": -0.0953})
CHARLES_DILOCO = PowerLaw(19.226, {"parameters": -0.0985, "replicas": 0.0116})
CHARLES_BY_REPLICAS = {
    1: PowerLaw(18.363, {"parameters": -0.0961}),
    2: PowerLaw(18.768, {"parameters": -0.0969}),
    4: PowerLaw(19.762, {"parameters": -0.0992}),
    8: PowerLaw(21.051, {"parameters": -0.1018}),
}
"""Laws of DiLoCo by the number of replicas; Table 7."""

CHINCHILLA = AdditiveLaw(1.6934, 406.4, 0.3392, 410.7, 0.2849)
EPOCH = AdditiveLaw(1.8172, 482.01, 0.3478, 2085.43, 0.3658)
C4 = AdditiveLaw(float(np.exp(0.6254804)), float(np.exp(6.255414)), 0.3526596, float(np.exp(7.3049974)), 0.3526596)
"""The law of N. Muennighoff et al., Scaling Data-Constrained Language Models (arXiv 2305.16264, 2023), Appendix, on C4,
with one exponent for both terms; 54 trainings."""

TOKEN_LAWS: Mapping[str, AdditiveLaw] = {"chinchilla": CHINCHILLA, "chinchilla-epoch": EPOCH, "c4-muennighoff": C4}
"""Laws of parameters and tokens, which extrapolate to more tokens than a fit has seen."""


def token_shifts(parameters: float, tokens: float, reference: float) -> Floats:
    """Return the logarithm of the loss on ``tokens`` over that on ``reference`` tokens by each law of `TOKEN_LAWS`."""
    setting = {"parameters": parameters, "tokens": tokens}
    reference_setting = {"parameters": parameters, "tokens": reference}
    return np.array([np.log(law.value(setting) / law.value(reference_setting)) for law in TOKEN_LAWS.values()])


TOKENS_PER_PARAMETER = SeenRange(19.5, 20.5)
"""A ratio of 20 with rounded sizes: the model of 330M in Table 3 of Charles et al. has 335M in Table 4."""

CHARLES_SIZES = SeenRange(35e6, 2.4e9)
"""Range of the parameters in the fits of Charles et al."""


@cache
def _size_drift() -> Drift:
    """Return the error of the loss per e-fold of parameters beyond the largest model, from the losses of 4B and 10B."""
    errors = []
    for method, law in (("ddp-adam", CHARLES_DDP), ("diloco", CHARLES_DILOCO)):
        for row in printed_losses("charles-2025", method, "test"):
            e_folds = float(np.log(CHARLES_SIZES.factor_outside(row.parameters)))
            errors.append((law.value(row.setting) / row.loss) ** (1 / e_folds) - 1)
    basis = "8 losses of 4B and 10B (Table 5), for which the fits are too low"
    return Drift(uncertainty_of(errors, basis))


def _replicas_drift() -> Drift:
    """Return the error per e-fold of replicas, from losses of 8 replicas and a law fitted to fewer replicas."""
    losses = printed_losses("charles-2025", "diloco")
    law = power_law_of([row for row in losses if row.replicas < 8], ["parameters", "replicas"])
    e_folds = np.log(2)  # from 4 to 8 replicas
    errors = [(law.value(row.setting) / row.loss) ** (1 / e_folds) - 1 for row in losses if row.replicas == 8]
    return Drift(uncertainty_of(errors, "8 replicas left out (7 losses of Table 4)"))


@cache
def _period_drift() -> Drift:
    """Return the exponent of the loss in the period, with its error, from Streaming DiLoCo at 30 and 100 steps."""
    losses = printed_losses("douillard-2025", "streaming-diloco")
    losses_at_30 = {(row.parameters, row.replicas): row.loss for row in losses if row.period == 30}
    ratios = [row.loss / losses_at_30[row.parameters, row.replicas] for row in losses if row.period == 100]
    exponents = [float(np.log(ratio) / np.log(100 / 30)) for ratio in ratios]
    mean_exponent = float(np.mean(exponents))
    errors = np.expm1(mean_exponent - np.array(exponents))  # of the mean, per e-fold of the period
    basis = "12 pairs of Streaming DiLoCo at 30 and 100 steps (Table 6 of Douillard et al.)"
    return Drift(uncertainty_of(errors, basis), mean_exponent)


def _uncertainty_of_new_sizes(losses: Sequence[MeasuredLoss], names: Sequence[str], label: str) -> Uncertainty:
    """Return the uncertainty of a power law of losses by cross-validation, each model size left out in turn."""
    return uncertainty_of(left_out_errors(losses, names, "parameters"), f"each size left out, {len(losses)} {label}")


def _charles() -> list[LossFit]:
    """Return the loss laws that Charles et al. (2025) fitted, with the ranges of their data."""
    seen = {
        "parameters": CHARLES_SIZES,
        "tokens_per_parameter": TOKENS_PER_PARAMETER,
        "batch_over_best": SeenRange(0.5, 2.0),
    }
    diloco_seen = seen | {"replicas": SeenRange(1.0, 8.0), "period": SeenRange(30.0, 30.0)}
    ddp_drifts = {"parameters": _size_drift()}
    drifts = ddp_drifts | {"period": _period_drift()}
    outer = f"{_TUNED}; outer Nesterov 0.9, its learning rate by the number of replicas"
    family, basis, how_read = "charles-2025", "losses of Table 4", "read in the paper's text"
    ddp_losses, losses = (printed_losses(family, method) for method in ("ddp-adam", "diloco"))
    ddp_errors = _uncertainty_of_new_sizes(ddp_losses, ["parameters"], basis)
    errors = _uncertainty_of_new_sizes(losses, ["parameters", "replicas"], basis)
    fits = [
        LossFit(
            "ddp", ("ddp-adam",), family, law=CHARLES_DDP, seen_ranges=seen, within=ddp_errors, data=_C4,
            source=f"{CHARLES}, Table 7; {how_read}", assumes=_TUNED,
            drifts=ddp_drifts, best_batch=DDP_BATCH,
        ),
        LossFit(
            "diloco", ("diloco",), family, law=CHARLES_DILOCO, seen_ranges=diloco_seen, within=errors, data=_C4,
            source=f"{CHARLES}, Table 10; {how_read}",
            assumes=outer, drifts=drifts | {"replicas": _replicas_drift()}, best_batch=DILOCO_BATCH,
        ),
    ]  # fmt: skip
    for replicas, law in CHARLES_BY_REPLICAS.items():
        losses_at_count = [row for row in losses if row.replicas == replicas]
        fits.append(LossFit(
            f"diloco-{replicas}", ("diloco",), family, law,
            seen_ranges=diloco_seen | {"replicas": SeenRange(replicas, replicas)},
            within=_uncertainty_of_new_sizes(losses_at_count, ["parameters"], basis), data=_C4,
            source=f"{CHARLES}, Table 7; {how_read}", assumes=outer, drifts=drifts, best_batch=DILOCO_BATCH,
        ))  # fmt: skip
    return fits


def _douillard() -> list[LossFit]:
    """Return fits to the losses of Douillard et al. that this package computes, because the paper prints only slopes.

    The losses are those of trainings on 17 to 20 tokens per parameter; `TOKEN_LAWS` convert them to 20.
    """
    fits = []
    for name, method, names in (
        ("streaming-ddp", "ddp-adam", ["parameters"]),
        ("streaming-diloco", "streaming-diloco", ["parameters", "replicas", "period"]),
    ):
        losses = []
        for row in printed_losses("douillard-2025", method):
            shift = np.mean(token_shifts(row.parameters, TOKENS_RATIO * row.parameters, row.tokens))
            losses.append(row._replace(loss=row.loss * float(np.exp(shift))))
        law = power_law_of(losses, names)
        sizes = SeenRange(min(row.parameters for row in losses), max(row.parameters for row in losses))
        seen = {"parameters": sizes, "tokens_per_parameter": SeenRange(16.9, 20.0)}  # the ranges of the trainings
        setup = ""
        if method != "ddp-adam":
            seen |= {"replicas": SeenRange(2.0, 4.0), "period": SeenRange(30.0, 100.0)}
            setup = "; outer learning rate 0.4, fragments of 3 layers, a step late, in 4 bits"
        fits.append(LossFit(
            name, (method,), family="douillard-2025", law=law, seen_ranges=seen,
            within=_uncertainty_of_new_sizes(losses, names, "losses of Tables 5 and 6"),
            data="C4, evaluation loss in nats per token, 32,000 tokens in the vocabulary",
            source=f"fitted here to {DOUILLARD}, Tables 5 and 6 (two decimals); read in the paper's text",
            assumes=f"as of Charles et al., but sequences of 1,024{setup}", drifts={"parameters": _size_drift()},
        ))  # fmt: skip
    return fits


def _hoffmann() -> list[LossFit]:
    """Return the two fits to the losses of Hoffmann et al."""
    figure = (
        "241 losses read from the vector graphic of Figure 4 (public repository epoch-research/analyzing-chinchilla)"
    )
    chinchilla = LossFit(
        "chinchilla", ("ddp-adam",), family="hoffmann-2022", law=CHINCHILLA,
        seen_ranges={"parameters": SeenRange(70e6, 16e9), "tokens": SeenRange(5e9, 500e9)},
        within=Uncertainty(0.9922, 1.0124, points=241, basis=figure),
        data="MassiveText, loss in nats per token of a vocabulary of 32,000",
        source=f"{HOFFMANN}, equation 10 (approach 3), with the digits that {BESIROGLU} read in its TeX source: "
        "the printed exponents 0.34 and 0.28 say 1.7% more than the losses of its Figure 4",
        assumes="AdamW, cosine decay over as many tokens as are trained on",
    )  # fmt: skip
    return [
        chinchilla,
        replace(
            chinchilla, name="chinchilla-epoch", law=EPOCH,
            seen_ranges={"parameters": SeenRange(57e6, 16.2e9), "tokens": SeenRange(0.81e9, 318e9)},
            within=Uncertainty(0.9905, 1.0093, points=241, basis=figure),
            source=f"{BESIROGLU}, equation 3, of the losses of Figure 4 of {HOFFMANN}; read in "
            "public codes, which agree",
        ),
    ]  # fmt: skip


@cache
def loss_fits() -> Mapping[str, LossFit]:
    """Return all published fits of losses by name; the first fit of a method is its default."""
    return {fit.name: fit for fit in (*_charles(), *_douillard(), *_hoffmann())}


def fits_of(method: str) -> list[LossFit]:
    """Return the published fits of losses that cover a method, the default first."""
    return [fit for fit in loss_fits().values() if method in fit.methods]


def ddp_fit_of(fit: LossFit) -> LossFit:
    """Return the fit of data parallelism to losses that are comparable with those of another fit."""
    return next(other for other in fits_of("ddp-adam") if other.family == fit.family)


def fit_named(name: str | None, method: str) -> LossFit:
    """Return a published fit of losses by its name, or the first that covers a method."""
    fits = {fit.name: fit for fit in fits_of(method)}
    if name is None and not fits:
        covered_methods: set[str] = set().union(*(fit.methods for fit in loss_fits().values()))
        expected = f"a method that a published fit covers: {one_of(sorted(covered_methods), method)}"
        raise SpecError("method", method, expected)
    if name is None:
        return next(iter(fits.values()))
    require_one_of("fit", name, loss_fits())
    if name not in fits:
        raise SpecError("fit", name, f"{one_of(fits, name)}, of {method!r}")
    return fits[name]
