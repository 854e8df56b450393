"""Small trainings that the tests of this folder share."""

from __future__ import annotations

from typing import Any

from syncline.runs.training.train_and_time import train_method
from syncline.runs.training.trained import Trained
from syncline.specs import CompareSpec, RunSpec, load_spec

BOWL: dict[str, Any] = {
    "kind": "compare",
    "name": "bowl",
    "problem": {"kind": "quadratic", "spectrum": [1, 10], "noise_std": 0.1},
    "workers": 3,
    "steps": 40,
    "seeds": [0, 1],
    "eval_every": 10,
    "methods": [
        {"kind": "ddp", "rule": "sgdm", "lr": 0.01},
        {"kind": "local", "rule": "adam", "lr": 0.01, "period": 8},
    ],
    "networks": ["10gbe", "wan"],
    "compute": {"seconds": "1 ms"},
}


def bowl(**fields: Any) -> CompareSpec:
    """A comparison on a quadratic: milliseconds to train."""
    return CompareSpec.model_validate(BOWL | fields)


def bowl_run(**fields: Any) -> RunSpec:
    """The second of its methods alone."""
    shared = {name: value for name, value in BOWL.items() if name not in ("methods", "networks")}
    return RunSpec.model_validate(shared | {"kind": "run", "method": BOWL["methods"][1], "network": "wan"} | fields)


def digits(*overrides: str) -> CompareSpec:
    """The bundled comparison on digits, with one seed."""
    return load_spec("digits-skewed", ["seeds=[0]", *overrides], CompareSpec)


def trained(spec: CompareSpec) -> list[Trained]:
    """Each of its methods, trained in this process."""
    return [train_method(spec, method) for method in spec.methods]
