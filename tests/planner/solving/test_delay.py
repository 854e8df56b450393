"""The fewest steps late that hide a fragment, against the closed form of a fragment that travels alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

import syncline as sl
from syncline.specs.models import transformer

STEP_S, PERIOD, FRAGMENTS = 0.1, 100, 4
MODEL = {"layers": 8, "width": 512, "heads": 8, "vocabulary": 8, "sequence": 8, "name": "m"}
BYTES = 4.0 * transformer(MODEL).parameters


def question(fragment_steps: float, **stream: Any) -> dict[str, Any]:
    """Two workers whose link carries a fragment in ``fragment_steps`` steps of computing."""
    rate = BYTES / FRAGMENTS / (fragment_steps * STEP_S)
    return {
        "model": MODEL,
        "workers": 2,
        "networks": [{"latency": 0, "bandwidth": f"{8 * rate:.9f} bit/s", "name": "n"}],
        "methods": [
            {"kind": "streaming-diloco", "lr": 1.0, "period": PERIOD, "stream": {"fragments": FRAGMENTS, **stream}}
        ],
        "compute": {"seconds": STEP_S},
        "tokens_per_worker": 8,
        "steps": 10_000,
    }


@pytest.mark.parametrize("fragment_steps", [0.4, 1.3, 3.6, 17.2])
def test_a_fragment_of_c_seconds_is_hidden_by_c_over_t_steps(fragment_steps: float) -> None:
    """Fragments are cut by whole tensors, so that the largest is a few percent above a quarter of the model."""
    asked = question(fragment_steps)
    (row,) = sl.solve("delay", **asked, exposed=0).rows
    assert (row["holds"], row["value"]) == ("from", math.ceil(fragment_steps))
    assert row["exposed_communication_s"] == pytest.approx(0, abs=1e-12)
    earlier = question(fragment_steps, tau=math.ceil(fragment_steps) - 1)
    (waiting,) = sl.project(**earlier, thresholds=False).rows
    assert waiting["exposed_communication_s"] > 1e-6


def test_a_fragment_in_the_backward_pass_has_a_part_of_a_step_more() -> None:
    """Of two runs that lie half a model apart, the upper one is ready at two thirds of the step, or earlier."""
    asked = question(3.2)
    assert sl.solve("delay", **asked, exposed=0).rows[0]["value"] == 4
    inside = question(3.2, in_backward=True, strides=2) | {"bucket_size": "1 MB"}
    assert sl.solve("delay", **inside, exposed=0).rows[0]["value"] == 3


def test_a_network_that_is_busy_all_the_time_hides_at_no_delay() -> None:
    (row,) = sl.solve("delay", **question(1.1 * PERIOD / FRAGMENTS), exposed=0).rows
    assert (row["holds"], row["value"]) == ("never", None)
    assert "steps late" in row["why"]


def test_a_method_without_fragments_has_no_delay() -> None:
    asked = question(2.5)
    asked["methods"] = ["diloco", *asked["methods"]]
    rows = {row["of"]: row for row in sl.solve("delay", **asked, exposed=0).rows}
    assert rows["diloco"]["why"] == "it has no delay"
    assert rows["streaming-diloco"]["value"] == 3
