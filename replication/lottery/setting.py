"""The setting of the lottery, and the knobs of its trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.files import parse_yaml
from syncline.runs.sweep.search import Tuned
from syncline.seeds import generator

FILE = Path(__file__).with_name("lottery.yaml")
RESULTS = Path(__file__).parents[2] / "results" / "replication" / "lottery"


def lottery_setting(file: Path = FILE) -> dict[str, Any]:
    """Return the fields of ``lottery.yaml``."""
    fields: dict[str, Any] = parse_yaml(file.read_text(encoding="utf-8"))
    return fields


def drawn_knobs(label: str, tune: Mapping[str, str], trials: int, seed: int) -> list[dict[str, float]]:
    """Return the knobs of each trial of a method, drawn independently and log-uniformly, to four digits.

    Args:
        label: name of the method, which names its stream of random numbers.
        tune: range of each knob by its path, as in ``{lr: 1e-4..1e-2, beta: 1-0.1..1-0.01}``.
        trials: number of trials.
        seed: seed of all draws.

    >>> drawn_knobs("demo", {"lr": "1e-3..1e-2", "beta": "1-0.1..1-0.01"}, 1, 0)
    [{'lr': 0.005744, 'beta': 0.9861}]
    """
    ranges = [Tuned.parse(f"{path}={ends}") for path, ends in tune.items()]
    draws = generator(seed, f"lottery {label}").random((trials, len(ranges)))
    return [
        {
            tuned.path: float(f"{tuned.value(tuned.low * math.exp(part * math.log(tuned.high / tuned.low))):.4g}")
            for tuned, part in zip(ranges, row, strict=True)
        }
        for row in draws.tolist()
    ]


def labels(setting: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the methods in their order."""
    return [str(entry["method"]["label"]) for entry in setting["methods"]]
