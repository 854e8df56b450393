"""Fits by Charles et al. of the best batch, learning rate and outer learning rate of data parallelism and DiLoCo.

Source: Z. Charles et al., "Communication-Efficient Language Model Training Scales Reliably and Robustly: Scaling Laws
for DiLoCo" (arXiv 2503.09799, 2025), Tables 8, 9 and 10, Figure 7. Models of 35M to 2.4B parameters, 20 tokens per
parameter, H = 30, sequences of 2,048. The paper does not print the unit of the batches; read as sequences, they agree
with Figure 4, whose axis is in tokens.
"""

from __future__ import annotations

from syncline.costmodel.scaling.laws import PowerLaw
from syncline.errors import SpecError

SEQUENCE = 2048
"""Tokens of a sequence in the paper."""


def _law(scale: float, parameters: float, replicas: float | None = None) -> PowerLaw:
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
        parameters: N; positive.
        replicas: M of DiLoCo; None for data parallelism.

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
