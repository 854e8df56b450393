"""The reason why a training is shorter than data parallelism's computing alone: fewer tokens, or a faster layout."""

from __future__ import annotations

from syncline.units import format_seconds


def below_computing(
    time_s: float | None,
    computing_s: float,
    factor: float | None,
    bounds: tuple[float | None, float | None],
    source: str | None,
) -> str | None:
    """Return why a training is shorter than data parallelism's computing, in words, or None if it is not shorter.

    Args:
        time_s: duration of the training; None if it is unknown.
        computing_s: seconds in which data parallelism only computes, without any exchange.
        factor: tokens over those of data parallelism for the same loss; None if they are unknown.
        bounds: bounds of the factor.
        source: fit of the factor, with the measurements that limit it.

    >>> print(below_computing(9e5, 1e6, 0.94, (0.7, None), "fit a"))
    less than the 11.6 d of data parallelism's computing: 0.94 times its tokens to the same loss (0.7 or more), fit a
    """
    if time_s is None or time_s >= computing_s:
        return None
    text = f"less than the {format_seconds(computing_s)} of data parallelism's computing: "
    if factor is None or factor >= 1:
        return f"{text}a step of its layout computes faster"
    low, high = bounds
    ends = "" if low is None else f" ({low:.2g} or more)" if high is None else f" ({low:.2g} to {high:.2g})"
    return f"{text}{factor:.2g} times its tokens to the same loss{ends}, {source}"
