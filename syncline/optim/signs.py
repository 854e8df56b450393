"""Signs that do not hide what is not a number."""

from __future__ import annotations

from torch import Tensor


def finite_sign(x: Tensor) -> Tensor:
    """Return ``sign(x)``, and NaN where x is not finite.

    Torch's sign of NaN is 0 and of infinity 1: a coordinate would stand still, or run away, for good, and no loss would
    tell. No value is read back for it.

    >>> import torch
    >>> finite_sign(torch.tensor([-3.0, 0.0, 2.0, torch.nan, torch.inf])).tolist()
    [-1.0, 0.0, 1.0, nan, nan]
    """
    return nan_where_nonfinite(x.sign(), x)


def nan_where_nonfinite(x: Tensor, source: Tensor) -> Tensor:
    """Set ``x`` to NaN in place wherever ``source`` is not finite, and return it."""
    return x.add_(source, alpha=0)
