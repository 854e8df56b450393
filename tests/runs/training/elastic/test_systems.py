"""What holds of all systems of workers at their own pace: the rows of `tests.methods.table.SYSTEMS`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.methods.parts.asynchronous import AsynchronousSpec
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.runs.training.trained import Trained
from syncline.specs import RunSpec, validate
from tests.methods.table import SYSTEMS
from tests.runs.training.elastic.late import SHARED

SPREAD = {"steps": 12, "seeds": [0], "eval_every": 12, "speeds": [1.0, 0.9, 0.5, 0.3]}


def spec_of(name: str, how: dict[str, Any] | None = None, **fields: Any) -> RunSpec:
    method = dict(SYSTEMS[name].fields)
    method["asynchronous"] = method["asynchronous"] | (how or {})
    return validate(RunSpec, SHARED | {"method": method} | fields)


def trained(spec: RunSpec) -> Trained:
    return train_method(spec, spec.method)


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_is_the_same_again_keeps_its_budget_and_learns(name: str) -> None:
    spec = spec_of(name, **SPREAD)
    one, other = trained(spec), trained(spec)
    assert one.history.loss.tobytes() == other.history.loss.tobytes()
    assert (
        one.asynchronous
        and other.asynchronous
        and repr(one.asynchronous.result.contributions) == repr(other.asynchronous.result.contributions)
    )
    columns = one.asynchronous.result.columns()
    assert columns["steps"].sum() == 4 * 12 and one.asynchronous.record()["steps_by_worker"] == [
        int(columns["steps"][columns["worker"] == m].sum()) for m in range(4)
    ]
    evaluated = one.history.evaluation["loss"][:, 0]
    assert evaluated[-1] < evaluated[0]
    clock = time_method(spec, one, spec.network)
    assert clock is not None
    sent = (
        (len(one.asynchronous.result.contributions) + len(one.asynchronous.result.merges)) * 3 * 4.0
    )  # three numbers of 4 bytes
    assert clock.bytes_per_worker * 4 * 12 == pytest.approx(sent)


@pytest.mark.parametrize("name", SYSTEMS)
def test_where_nobody_is_late_it_is_the_synchronous_method(name: str) -> None:
    late = trained(spec_of(name, SYSTEMS[name].punctual, steps=12, seeds=[0], eval_every=0))
    fields = {field: value for field, value in SYSTEMS[name].fields.items() if field != "asynchronous"}
    spec = validate(RunSpec, SHARED | {"method": fields, "steps": 12, "seeds": [0], "eval_every": 0})
    together = trained(spec)
    ends = [each.history.last_evaluation()["loss"] for each in (late, together)]
    np.testing.assert_allclose(late.history.loss, together.history.loss, rtol=1e-6)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


def test_every_field_is_in_some_row_and_does_something_there() -> None:
    unseen = set(AsynchronousSpec.model_fields)
    for name, system in SYSTEMS.items():
        given = system.fields["asynchronous"]
        for field in unseen & set(given):
            if field == "buffer_size" and given.get("synchronous"):
                continue  # what stands beside it needs it
            without = {field: AsynchronousSpec.model_fields[field].default}
            if field == "momentum":
                without["momentum_activation"] = 0.0  # is of delayed momentum alone
            one, other = (trained(spec_of(name, how, **SPREAD)).history.loss for how in ({}, without))
            assert not np.array_equal(one, other), (name, field)
            unseen.discard(field)
    assert not unseen
