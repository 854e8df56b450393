"""Lion Cub's Figures 7 and 15 from its Table 4: steps of four GPTs as computing, bits on links, and packing.

Table 4 has shares of communication for one model; we assume that it is the 774M model of Figure 8. Packing is the
communication time of a cell beyond the time of its bytes (`speed.fit`). Computing grows with parameters times batch.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from replication.studies.papers.speed import SpeedFit, SpeedTableSpec, fit, wire_bits
from replication.theory import packed_vote_s
from syncline import SpecError
from syncline.costmodel import MODELS
from syncline.errors import one_of
from syncline.specs import load_spec

GPT_BATCHES = {"gpt2": 12, "gpt2-medium": 12, "gpt2-large": 12, "gpt2-xl": 8}
"""Sequences per worker and step, by model. Source: Lion Cub, Appendix F.2."""

MEASURED_MODEL = "gpt2-large"
PRECISIONS = (32, 16, 8, 4, 1)


class StepParts(NamedTuple):
    """Seconds of a step, split into computing, links and packing."""

    computing_s: float
    links_s: float
    packing_s: float


@cache
def speed_constants() -> tuple[SpeedTableSpec, SpeedFit]:
    """Return the spec of Table 4 and the constants fitted on its 32-bit steps."""
    spec = load_spec("lion-cub-table4", (), SpeedTableSpec)
    return spec, fit(spec)


def seen_bits_per_s(bandwidth_bits_per_s: float) -> float:
    """Return the effective bandwidth of a worker of Table 4 in bits per second: ``B N / (V + B h)``."""
    _, constants = speed_constants()
    parameters = MODELS[MEASURED_MODEL].parameters
    software = bandwidth_bits_per_s * constants.software_s_per_bit
    return bandwidth_bits_per_s * parameters / (constants.parameters + software)


@cache
def packing_s_per_parameter(bits: int) -> float:
    """Return the seconds of packing per parameter: the median over Table 4's three bandwidths, at least 0."""
    spec, constants = speed_constants()
    packing_s = []
    for cell in spec.cells:
        if cell.bits == bits:
            share = float(cell.communication_percent) / 100
            transfer_s = constants.communication_s(wire_bits(bits, spec.workers), 8 * cell.bandwidth)
            packing_s.append(constants.compute_s * share / (1 - share) - transfer_s)
    return max(0.0, float(np.median(packing_s))) / MODELS[MEASURED_MODEL].parameters


def packed_step(model: str, bits: int, bandwidth_bits_per_s: float) -> StepParts:
    """Return the parts of a step of Lion Cub on Table 4's workers.

    Args:
        model: one of ``GPT_BATCHES``.
        bits: bits per parameter: 32, 16, 8, 4 or 1.
        bandwidth_bits_per_s: bandwidth as Table 4 prints it.

    Raises:
        SpecError: the model is not in ``GPT_BATCHES``, or the bits are not in ``PRECISIONS``.
    """
    if model not in GPT_BATCHES:
        raise SpecError("model", model, one_of(GPT_BATCHES, model))
    if bits not in PRECISIONS:
        raise SpecError("bits", bits, "32, 16, 8, 4 or 1")
    spec, constants = speed_constants()
    parameters = MODELS[model].parameters
    relative_compute = (
        parameters * GPT_BATCHES[model] / (MODELS[MEASURED_MODEL].parameters * GPT_BATCHES[MEASURED_MODEL])
    )
    links_s = packed_vote_s(wire_bits(bits, spec.workers), parameters, seen_bits_per_s(bandwidth_bits_per_s))
    return StepParts(constants.compute_s * relative_compute, float(links_s), packing_s_per_parameter(bits) * parameters)


def packed_speedup(model: str, bits: int, bandwidth_bits_per_s: float) -> float:
    """Return the seconds of a step with 32 bits over those with ``bits``."""
    return sum(packed_step(model, 32, bandwidth_bits_per_s)) / sum(packed_step(model, bits, bandwidth_bits_per_s))
