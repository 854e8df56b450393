"""FLOPs of orthogonalising a matrix, as Muon and Scion do in every step."""

from __future__ import annotations

NEWTON_SCHULZ_STEPS = 5
"""Newton-Schulz iterations of both methods. Source: K. Jordan et al., "Muon" (2024)."""


def newton_schulz_flops(rows: int, columns: int, steps: int = NEWTON_SCHULZ_STEPS) -> float:
    """Return the FLOPs of the products of ``X <- a X + (b A + c A^2) X``, ``A = X X^T`` on the smaller side.

        steps (4 d^2 D + 2 d^3),   d = min(m, n),   D = max(m, n)

    Args:
        rows: m.
        columns: n.
        steps: number of iterations.

    >>> newton_schulz_flops(2, 2, 1)  # three products of 2 x 2 matrices
    48.0
    """
    short, long = sorted((float(rows), float(columns)))
    return steps * (4 * short * short * long + 2 * short**3)
