"""What orthogonalising a matrix costs, as Muon and Scion do it in every step."""

from __future__ import annotations

NEWTON_SCHULZ_STEPS = 5
"""Iterations of both methods. Source: K. Jordan et al., "Muon" (2024)."""


def newton_schulz_flops(rows: int, columns: int, steps: int = NEWTON_SCHULZ_STEPS) -> float:
    """FLOPs of the products of ``X <- a X + (b A + c A^2) X``, ``A = X X^T`` on the smaller side.

        steps (4 d^2 D + 2 d^3),   d = min(m, n),   D = max(m, n)

    Args:
        rows: m.
        columns: n.
        steps: iterations.

    >>> newton_schulz_flops(2, 2, 1)  # three products of 2 x 2 matrices
    48.0
    """
    short, long = sorted((float(rows), float(columns)))
    return steps * (4 * short * short * long + 2 * short**3)
