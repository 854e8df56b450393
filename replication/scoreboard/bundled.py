"""Final values of bundled specs, trained again: losses of methods, and their distance from each other."""

from __future__ import annotations

from functools import cache

import numpy as np

from replication.scoreboard.small import median_loss
from syncline.methods import MethodBase, method_of
from syncline.runs.training.train_and_time import Trained, train_method
from syncline.specs import CompareSpec, load_spec


@cache
def _spec(name: str) -> CompareSpec:
    return load_spec(name, [], CompareSpec)


@cache
def _trained(spec: str, method: str | MethodBase) -> Trained:
    return train_method(_spec(spec), method_of(method))


def _final_loss(spec: str, method: str | MethodBase) -> float:
    return median_loss(_trained(spec, method).history.evaluation["loss"][-1])


def final_losses(spec: str, **methods: str) -> dict[str, float]:
    """Return the median final losses of methods, trained as a bundled spec says: ``{label: loss}``."""
    return {label: _final_loss(spec, method) for label, method in methods.items()}


def late_second_moment_loss(eps: float) -> float:
    """Return the median final loss of DES-LOC in ``digits-skewed`` with this eps."""
    method = method_of({"kind": "des-loc", "lr": 0.003, "eps": eps})
    return _final_loss("digits-skewed", method)


def farthest_from_kept_ties(ties: str) -> float:
    """Return the largest distance between the live coordinate with one-bit ties and with kept ties, in rates.

    The maximum is over the steps and seeds of ``lion-cub-zeros``; ``ties`` is the label of a method.
    """
    methods = {method.label: method for method in _spec("lion-cub-zeros").methods}
    paths = [_trained("lion-cub-zeros", methods[label]).history.trace["position"][..., 0] for label in (ties, "kept")]
    return float(np.abs(paths[0] - paths[1]).max() / methods[ties].lr)
