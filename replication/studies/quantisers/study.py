"""Pieces and rows of a study of quantisers: signs of sums of small integers, on vectors and in tuned trainings."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from replication.studies.draws import DistributionSpec, draw_of
from replication.studies.quantisers.logarithms import log_quantise, log_restore, without_zeros
from replication.studies.quantisers.spec import NoiseSpec, QuantisersSpec, TuningSpec
from syncline.analysis import median_and_range
from syncline.costmodel.traffic.packing import sum_levels
from syncline.methods import MethodBase
from syncline.optim import quantise_lp, quantise_max, sign_agreement
from syncline.problems.random_draws import torch_generator
from syncline.runs.training.train_and_time import train_method
from syncline.specs import Piece, Record, Report

if TYPE_CHECKING:
    from torch import Tensor

POWERS = {"L0": 0.0, "L0.01": 0.01, "L1": 1.0, "L10": 10.0, "Linf": math.inf}
"""Powers p of the Lp quantisers, by their names in tables and figures."""

RATES = ("match", "flip", "zero")

RECORD: Record = dict.fromkeys(
    ("part", "distribution", "quantiser", "seed", *RATES, "stage", "lr", "steps", "loss")
)  # fmt: skip
"""Fields of a record of one seed; a field is None if it does not apply."""


def quantiser_pieces(spec: QuantisersSpec) -> list[Piece]:
    """Return a piece per distribution and a piece per noise and method.

    Lengths are in seeds for a distribution, and in steps of all trainings for a noise and method.
    """
    pieces = []
    if spec.vectors:
        for distribution in spec.vectors.distributions:
            pieces.append(Piece(len(spec.seeds), partial(vector_records, spec, distribution)))
    if spec.training:
        steps = spec.training.steps * (len(spec.training.rates) + 1)
        for noise in spec.training.noises:
            pieces += [Piece(steps, partial(training_records, spec, noise, method)) for method in spec.training.methods]
    return pieces


def vector_records(spec: QuantisersSpec, distribution: DistributionSpec, report: Report) -> list[Record]:
    """Quantise one vector per worker and seed, and compare the sign of the sum with that of the exact sum.

    Returns:
        A record per seed and quantiser; no records after Ctrl-C.
    """
    import torch

    assert spec.vectors is not None
    torch.set_num_threads(1)
    levels, size = sum_levels(spec.vectors.bits, spec.workers), (spec.workers, spec.vectors.entries)
    records: list[Record] = []
    try:
        for done, seed in enumerate(spec.seeds):
            report(done)
            x = draw_of(distribution)(torch_generator(seed, "vectors", distribution.name), size)
            uniform = torch.rand(
                size, dtype=torch.float64, generator=torch_generator(seed, "rounding", distribution.name)
            )
            for name, total in quantised_sums(x, levels, uniform).items():
                rates = sign_agreement(total, x.sum(0))
                values = {rate: float(value) for rate, value in rates._asdict().items()}
                fields = {"part": "vectors", "distribution": distribution.name, "quantiser": name, "seed": seed}
                records.append(RECORD | fields | values)
        report(len(spec.seeds))
    except KeyboardInterrupt:
        return []
    return records


def quantised_sums(x: Tensor, levels: int, uniform: Tensor) -> dict[str, Tensor]:
    """Return the sums ``(n,)`` of the integers of P workers, by quantiser, for vectors ``(P, n)``.

    ``log`` sums the values that its integers encode, in units of each worker's maximum. An all-reduce cannot sum
    logarithms, so this quantiser would need an all-gather.
    """

    by_maximum = quantise_max(x, levels, uniform)
    sent = {"vote": x.sign()} | {name: quantise_lp(x, levels, p) for name, p in POWERS.items()}
    sent |= {"Qinf": by_maximum, "Qinf, no zeros": without_zeros(by_maximum, x)}
    sent |= {"log": log_restore(log_quantise(x, levels), levels)}
    return {name: integers.sum(0) for name, integers in sent.items()}


def training_records(spec: QuantisersSpec, noise: NoiseSpec, method: MethodBase, report: Report) -> list[Record]:
    """Train at each rate on the tuning seeds, then at the best rate on the seeds of the spec.

    The best rate has the lowest median loss over the tuning seeds; a loss that is not finite counts as the worst.

    Returns:
        A record per training and seed; no records after Ctrl-C.
    """
    tuning = spec.training
    assert tuning is not None
    records: list[Record] = []
    medians: list[float] = []  # of the trainings so far, by rate
    for number in range(len(tuning.rates) + 1):
        stage, seeds = "tuning", tuning.tuning_seeds
        if number < len(tuning.rates):
            lr = tuning.rates[number]
        else:
            stage, lr, seeds = "final", best_rate(tuning.rates, medians), spec.seeds
        steps_before = number * tuning.steps

        def report_step(step: int, steps_before: int = steps_before) -> None:
            """Report the number of steps of all trainings so far."""
            report(steps_before + step)

        training = tuning.training(noise, spec.workers, seeds)
        trained = train_method(training, method.model_copy(update={"lr": lr}), report_step)
        if trained.history.interrupted:
            return []
        losses = trained.history.evaluation["loss"][-1].astype(float)
        middle, _, _ = median_and_range(losses[:, None])
        medians.append(float(middle[0]))
        for seed, loss in zip(seeds, losses.tolist(), strict=True):
            records.append(RECORD | {
                "part": "training", "distribution": noise_distribution(noise).name, "quantiser": method.name,
                "seed": seed, "stage": stage, "lr": lr, "steps": trained.history.steps, "loss": loss,
            })  # fmt: skip
    return records


def best_rate(rates: tuple[float, ...], medians: list[float]) -> float:
    """Return the rate with the lowest median loss; the lowest rate if no median is finite."""
    return min(zip(medians, rates, strict=True))[1]


def noise_distribution(noise: NoiseSpec) -> DistributionSpec:
    """Return the distribution of the gradient noise of a training."""
    return DistributionSpec(kind="stable", alpha=noise.alpha)


def quantiser_rows(spec: QuantisersSpec, records: list[Record]) -> list[Record]:
    """Return a row per finished part, distribution and quantiser, in the order of the spec."""
    return _vector_rows(spec, records) + (_training_rows(spec, spec.training, records) if spec.training else [])


def _vector_rows(spec: QuantisersSpec, records: list[Record]) -> list[Record]:
    out = []
    for distribution in spec.vectors.distributions if spec.vectors else ():
        vectors = [r for r in records if r["part"] == "vectors" and r["distribution"] == distribution.name]
        for quantiser in dict.fromkeys(record["quantiser"] for record in vectors):
            quantised = [record for record in vectors if record["quantiser"] == quantiser]
            rates = {name: np.array([record[name] for record in quantised]) for name in RATES}
            out.append(_row("vectors", distribution, quantiser, len(quantised)) | {
                **{name: float(values.mean()) for name, values in rates.items()},
                "match_min": float(rates["match"].min()),
                "match_max": float(rates["match"].max()),
            })  # fmt: skip
    return out


def _training_rows(spec: QuantisersSpec, tuning: TuningSpec, records: list[Record]) -> list[Record]:
    final = [r for r in records if r["stage"] == "final"]
    out = []
    for noise in map(noise_distribution, tuning.noises):
        by_method = {
            method.name: [r for r in final if (r["distribution"], r["quantiser"]) == (noise.name, method.name)]
            for method in tuning.methods
        }
        reference = [_or_worst(record["loss"]) for record in by_method[tuning.reference]]
        for name, seeds in by_method.items():
            if seeds:
                losses = [_or_worst(record["loss"]) for record in seeds]
                middle, low, high = median_and_range(np.array(losses)[:, None])
                out.append(_row("training", noise, name, len(seeds)) | {
                    "lr": seeds[0]["lr"],
                    "loss": float(middle[0]),
                    "loss_min": float(low[0]),
                    "loss_max": float(high[0]),
                    "reference": tuning.reference,
                    "worse_than_reference": sum(map(float.__gt__, losses, reference)) if reference else None,
                })  # fmt: skip
    return out


ROW: Record = dict.fromkeys((
    *("part", "distribution", "alpha", "quantiser", "seeds", *RATES, "match_min", "match_max"),
    *("lr", "loss", "loss_min", "loss_max", "reference", "worse_than_reference"),
))  # fmt: skip


def _row(part: str, distribution: DistributionSpec, quantiser: str, seeds: int) -> Record:
    named = {"distribution": distribution.name, "alpha": distribution.alpha}
    return ROW | {"part": part, **named, "quantiser": quantiser, "seeds": seeds}


def _or_worst(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf
