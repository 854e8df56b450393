from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from syncline.costmodel import HARDWARE, MODELS, compute_s
from syncline.errors import SpecError
from syncline.specs import hardware


def test_an_hour_of_half_a_peak() -> None:
    half = dataclasses.replace(hardware("H100"), mfu=0.5)
    np.testing.assert_allclose(compute_s(np.array([0.0, 3600 * 0.5 * 989e12]), half), [0, 3600])


def test_presets_are_complete() -> None:
    for name, preset in HARDWARE.items():
        assert preset.name == name
        assert "Peak" in preset.source or "assumption" in preset.source
        assert "mfu" in preset.source


def test_fields_may_be_text_in_braces() -> None:
    assert hardware("{preset: h100, power_w: 500}") == dataclasses.replace(hardware("h100"), power_w=500.0)
    assert hardware("{name: mine, peak_flops: 1e14, mfu: 0.3, precision: tf32}").number_format == "fp32"
    for text, part in (("{preset: h100, powr: 5}", "power_w"), ("{preset: ", "YAML"), ("{peak_flops: 1}", "mfu")):
        with pytest.raises(SpecError, match=part):
            hardware(text)
    with pytest.raises(SpecError, match=r"precision: got 'nonsense'"):
        hardware("{peak_flops: 1e14, mfu: 0.3, precision: nonsense}")


def test_curvadions_step_is_of_the_measured_order() -> None:
    # Section 4.4: 16 micro-batches of 32 sequences of 1,024 tokens per GPU take 3.375 s.
    predicted_s = compute_s(MODELS["gpt-160m"].flops_per_token * 16 * 32 * 1024, hardware("h100"))
    assert predicted_s / 3.375 == pytest.approx(1 / 3, rel=0.1)  # 13% of an H100's peak, not 40%


def test_impossible_hardware_is_refused() -> None:
    with pytest.raises(SpecError, match="did you mean 'h100'"):
        hardware("h1000")
    with pytest.raises(SpecError, match=r"hardware\.mfu"):
        dataclasses.replace(hardware("h100"), mfu=40)
    with pytest.raises(SpecError, match=r"hardware\.peak_flops"):
        dataclasses.replace(hardware("h100"), peak_flops=0.0)
    with pytest.raises(SpecError, match="flops: got -1"):
        compute_s(-1.0, hardware("h100"))
