"""What a spec says of faults, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SpecError
from syncline.specs import load_spec

DIGITS = "digits-skewed"
MANY = "[{worker: 0}, {worker: 1}, {worker: 2}, {worker: 3, first_step: 5, end_step: 6}]"
AWAY = "faults.absences=[{worker: 1, first_step: 3, end_step: 9}]"
ONLY_MEANS = "a method may send only means"

REFUSED = [
    ("faults.slow_links=[{worker: 4, bandwidth_divisor: 10}]", "faults.slow_links.0.worker", 4, "from 0 to 3"),
    (
        "faults.slow_links=[{worker: 0, bandwidth_divisor: 0}]",
        "faults.slow_links.0.bandwidth_divisor",
        0,
        "greater than 0",
    ),
    ("faults.absences=[{worker: 0}, {worker: 4}]", "faults.absences.1.worker", 4, "from 0 to 3"),
    ("faults.absences=[{worker: 0, first_step: 512}]", "faults.absences.0.first_step", 512, "from 0 to 511"),
    (
        "faults.absences=[{worker: 0, first_step: 5, end_step: 5}]",
        "faults.absences.0.end_step",
        5,
        "a step after first_step (5)",
    ),
    (f"faults.absences={MANY}", "faults.absences", None, "a worker present in step 5"),
    ("faults.stragglers.pareto_shape=1", "faults.stragglers.pareto_shape", 1, "greater than 1"),
    ("faults.stragglers.slowdowns={probability: 2, factor: 3}", "slowdowns.probability", 2, "less than or equal to 1"),
    ("faults.stragglers.pareto_shap=2", "faults.stragglers.pareto_shap", 2, "did you mean 'pareto_shape'?"),
    ("faults.latency_jitter=-1", "faults.latency_jitter.sigma", -1, "at least 0"),
    ("faults.latency_jitter={mean_delay: -1 ms}", "faults.latency_jitter.mean_delay", "-1 ms", "a time"),
    ("faults.absence=[]", "faults.absence", [], "did you mean 'absences'?"),
]


@pytest.mark.parametrize(("override", "path", "value", "expected"), REFUSED)
def test_refused(override, path, value, expected):
    with pytest.raises(SpecError) as caught:
        load_spec(DIGITS, [override])
    assert caught.value.path.endswith(path)
    assert value is None or caught.value.value == value
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    "method", ["lion-cub", "demo", "powersgd", "mt-dao-top-k", "streaming-mt-dao", "dion", "top-k"]
)
def test_methods_that_send_more_than_means_have_no_absences(method):
    load_spec(DIGITS, [f"methods.2={method}"])
    with pytest.raises(SpecError, match=f"methods.2: got '{method}'.*{ONLY_MEANS}"):
        load_spec(DIGITS, [f"methods.2={method}", AWAY])
    with pytest.raises(SpecError, match=f"method: got '{method}'.*{ONLY_MEANS}"):
        load_spec("rosenbrock-mt-dao", [f"method={method}", AWAY])


def test_a_run_that_is_written_can_be_read_again():
    spec = load_spec(DIGITS, [AWAY, "faults.latency_jitter=0.5", "faults.stragglers.speed_sigma=0.1"])
    assert spec.faults.latency_jitter.sigma == 0.5
    assert type(spec).model_validate(spec.model_dump(mode="json")) == spec


def test_a_projection_says_that_it_cannot_see_them():
    faults = ["faults.stragglers.speed_sigma=0.5", "faults.slow_links=[{worker: 1, bandwidth_divisor: 3}]"]
    assert load_spec("project-gpt-160m").warnings() == []
    assert load_spec("project-gpt-160m", faults).warnings() == [
        f"faults.{field} has no effect on a closed form; use 'run' or 'compare'"
        for field in ("stragglers", "slow_links")
    ]


def test_each_straggler_has_a_stream_of_its_own_and_they_multiply():
    def factors(*fields):
        overrides = [f"faults.stragglers.{field}" for field in fields]
        return load_spec(DIGITS, overrides).faults.stragglers.factors(50, 4, 0)

    one, other = factors("exponential_scale=0.3"), factors("pareto_shape=3")
    assert np.array_equal(factors("exponential_scale=0.3", "pareto_shape=3"), one * other)
    assert np.all(factors() == 1)
    slowed = factors("speed_sigma=0.4", "slowdowns={probability: 0.2, factor: 3}") / factors("speed_sigma=0.4")
    assert set(slowed.round(9).flatten()) == {1.0, 3.0}


def test_stragglers_lengthen_the_computing_and_no_pause():
    compute = load_spec(DIGITS, ["compute.pauses=[{worker: 1, step: 2, seconds: 7}]"]).compute
    times = compute.sample(1.0, 4, 4, 0, np.full((4, 4), 3.0))
    assert times[2, 1] == 10.0 and times.sum() == 3.0 * 16 + 7.0


@pytest.mark.parametrize(
    "disturbed",
    [
        [],
        ["compute.jitter=0.3", "compute.slow_workers=[{worker: 2, factor: 3}]"],
        [
            "faults.stragglers={exponential_scale: 0.2, pareto_shape: 3, speed_sigma: 0.1}",
            "faults.stragglers.slowdowns={probability: 0.3, factor: 2}",
        ],
        ["compute.jitter=0.1", "compute.pauses=[{worker: 1, step: 2, seconds: 7}, {worker: 0, step: 39, seconds: 5}]"],
    ],
    ids=["calm", "jitter", "stragglers", "pauses"],
)
def test_fewer_steps_see_the_machine_of_more_to_there(disturbed):
    """So that an interrupted run needs no times of steps that it never took."""
    spec = load_spec(DIGITS, ["steps=40", *disturbed])

    def times(steps):
        factors = spec.faults.stragglers.factors(steps, 4, 0)
        return spec.compute.sample(1.0, steps, 4, 0, factors)

    for steps in (1, 7, 39):
        assert np.array_equal(times(steps), times(40)[:steps])
