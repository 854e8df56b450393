"""Fits by Charles et al. of the best batch, learning rate and outer learning rate of data parallelism and DiLoCo.

Source: Z. Charles et al., "Communication-Efficient Language Model Training Scales Reliably and Robustly: Scaling Laws
for DiLoCo" (arXiv 2503.09799, 2025), Tables 8, 9 and 10, Figure 7. Models of 35M to 2.4B parameters, 20 tokens per
parameter, H = 30, sequences of 2,048. The paper does not print the unit of the batches; read as sequences, they agree
with Figure 4, whose axis is in tokens.
"""

from __future__ import annotations

import math

from syncline.costmodel.scaling.laws import PowerLaw
from syncline.errors import SpecError

SEQUENCE = 2048
"""Tokens of a sequence in the paper."""


def _law(scale: float, parameters: float, replicas: float | None = None) -> PowerLaw:
    """Return a power law from its scale and its exponents."""
    return PowerLaw(scale, {"parameters": parameters} | ({} if replicas is None else {"replicas": replicas}))


DDP_BATCH = _law(0.22592 * SEQUENCE, 0.281)
"""Best batch of data parallelism in tokens; Table 9."""

DILOCO_BATCH = _law(0.00709 * SEQUENCE, 0.4695, 0.3399)
"""Best batch of DiLoCo in tokens, over all replicas; Table 10."""

DILOCO_BATCHES = {
    replicas: _law(scale * SEQUENCE, exponent)
    for replicas, scale, exponent in (
        (1, 0.01361, 0.435),
        (2, 0.00769, 0.479),
        (4, 0.00535, 0.510),
        (8, 0.01859, 0.455),
    )
}
"""Best batch of DiLoCo in tokens by the number of replicas; Table 9."""

DDP_LEARNING_RATE = _law(16319.2, -0.819)
"""Learning rate of AdamW with data parallelism; Table 8."""

DILOCO_LEARNING_RATE = _law(22256.0, -0.8827, 0.2929)
"""Learning rate of DiLoCo's inner AdamW; Table 10."""

DILOCO_LEARNING_RATES = {
    replicas: _law(scale, exponent)
    for replicas, scale, exponent in (
        (1, 74620.6, -0.945),
        (2, 3978.82, -0.780),
        (4, 4512.99, -0.789),
        (8, 618986.0, -1.102),
    )
}
"""Learning rate of DiLoCo's inner AdamW by the number of replicas; Table 8."""

OUTER_LEARNING_RATES = {1: 0.4, 2: 0.6, 4: 0.6, 8: 0.8}
"""Learning rate of the outer Nesterov step with momentum 0.9, by replicas, from 335M parameters on; Figure 7."""


def best_batch_tokens(parameters: float, replicas: float | None = None) -> float:
    """Return the global batch in tokens with the lowest loss.

    Args:
        parameters: parameters of the model; positive.
        replicas: replicas of DiLoCo; None for data parallelism.

    Raises:
        SpecError: a number that is not positive.

    >>> round(best_batch_tokens(1.3e9, 2) / 2048)
    171
    """
    if not parameters > 0:
        raise SpecError("parameters", parameters, "a positive number")
    if replicas is None:
        return DDP_BATCH.value({"parameters": parameters})
    if not replicas > 0:
        raise SpecError("replicas", replicas, "a positive number")
    return DILOCO_BATCH.value({"parameters": parameters, "replicas": replicas})


def default_batch(parameters: float, workers: int, sequence: int) -> int:
    """Return a batch in tokens that fits of losses cover for data parallelism and DiLoCo alike.

    The batch is the geometric mean of the two best batches, rounded to the nearest power of two of whole sequences for
    each worker, or of sequences for all workers if there are fewer sequences than workers.

    Args:
        parameters: parameters of the model.
        workers: number of workers.
        sequence: tokens of a sequence.

    >>> default_batch(6.7e9, 64, 2048)
    524288
    """
    mean = math.sqrt(best_batch_tokens(parameters) * best_batch_tokens(parameters, 2))
    unit = workers * sequence if mean >= workers * sequence else math.lcm(workers, sequence)
    return unit * 2 ** max(0, round(math.log2(mean / unit)))


def batch_source(parameters: float) -> str:
    """Return the source of `default_batch`, in words."""
    parallel, diloco = best_batch_tokens(parameters), best_batch_tokens(parameters, 2)
    return (
        f"between the best of data parallelism ({parallel:,.0f}) and of DiLoCo with 2 replicas ({diloco:,.0f}) by the "
        "fits of Charles et al. (2025), Tables 9 and 10"
    )


def whole_batch(batch_tokens: float, workers: int, sequence: int) -> int:
    """Return the nearest batch in tokens that consists of whole sequences.

    The number of sequences is the same for each worker, and even from eight sequences per worker on. With fewer
    sequences than workers, the batch is a multiple of the least common multiple of workers and tokens of a sequence.

    Raises:
        SpecError: a batch that is not positive and finite.

    >>> whole_batch(4e6, 64, 2048), whole_batch(100e3, 64, 2048)
    (3932160, 100352)
    """
    if not 0 < batch_tokens < math.inf:
        raise SpecError("batch_tokens", batch_tokens, "a positive number")
    one_sequence_each = workers * sequence
    if batch_tokens >= 8 * one_sequence_each:
        unit = 2 * one_sequence_each
    else:
        unit = one_sequence_each if batch_tokens >= one_sequence_each else math.lcm(workers, sequence)
    return unit * max(1, round(batch_tokens / unit))
