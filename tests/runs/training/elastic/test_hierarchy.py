"""Local servers with one above, and momenta at both: HALoS's loop, written out, and its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from syncline.errors import SpecError
from syncline.runs.training.train_and_time import train_method
from syncline.specs import RunSpec, validate
from tests.runs.training.elastic.late import DDP, DILOCO, LOCAL_SGD, SHARED, gradient_of, loss_at, spec_of, trained

ABOVE = {"groups": 2, "merge_period": 3, "merge_weight": 0.25, "lr": 0.3, "momentum": 0.5, "buffer_size": 2}


def delayed(
    x: torch.Tensor, m: torch.Tensor, d: torch.Tensor, u: torch.Tensor, t: int, lr: float, beta: float, n: int
) -> None:
    """Delayed Nesterov with c = 0, in place, at the t-th update from 1."""
    d += u
    if t % n == 0:
        m.mul_(beta).add_(d / n)
        x -= lr * (beta * m + u / n)
        d.zero_()
    else:
        x -= lr * u / n


def test_halos_is_its_loop() -> None:
    """Workers step from their local server's model; that takes what they did by delayed Nesterov, sends ``y - x`` up
    after K versions, and merges what comes back: ``x <- (1 - alpha) x + alpha z``. Messages between regions take 2 s.
    """
    seconds, period, lr, one_way_s = [1.0, 1.43, 1.91, 0.83], 2, 0.05, 1.0
    method = LOCAL_SGD | {"period": period, "lr": lr, "outer_lr": 0.8, "outer_momentum": 0.9}
    how = {"buffer_size": 4, "momentum": "delayed", "hierarchy": ABOVE}
    network = {"sites": [2, 2], "lan": {"latency": 0, "bandwidth": "100 Tbit/s"},
               "uplink": {"latency": one_way_s / 2, "bandwidth": "100 Tbit/s"}}  # fmt: skip
    spec = spec_of(
        method, how, steps=30, speeds=[1 / s for s in seconds], seeds=[0], eval_every=0, network=network
    )  # fmt: skip
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None
    start = spec.problem.start_of(0).to(torch.float64)
    z, zm, zd, above = start.clone(), torch.zeros(3).double(), torch.zeros(3).double(), 0
    x, y = [start.clone() for _ in "ab"], [start.clone() for _ in "ab"]
    m, d = [torch.zeros(3).double() for _ in "ab"], [torch.zeros(3).double() for _ in "ab"]
    versions, merged, away = [0, 0], [0, 0], [False, False]
    begins, made, left = [start.clone() for _ in seconds], [0] * 4, 30 * 4
    events: list[tuple[float, int, str, int, Any]] = []  # when, what first, what, whose, with what

    def hand_out(worker: int, now_s: float) -> None:
        nonlocal left
        steps, begins[worker] = min(period, left), x[worker // 2].clone()
        left -= steps
        if steps:
            events.append((now_s + steps * seconds[worker], 0, "round", worker, steps))

    def maybe_up(s: int, now_s: float, last: bool = False) -> None:
        new = versions[s] - merged[s]
        if not away[s] and (new == 3 or (last and new)):
            away[s] = True
            events.append((now_s + one_way_s * s, 1, "up", s, (y[s] - x[s]).clone()))

    def ended(s: int) -> bool:
        return not left and not any(what == "round" and who // 2 == s for _, _, what, who, _ in events)

    for worker in range(4):
        hand_out(worker, 0.0)
    while events:
        events.sort(key=lambda event: event[:2])
        now_s, _, what, who, value = events.pop(0)
        if what == "round":
            s, p = who // 2, begins[who].clone()
            for _ in range(value):
                p = p - lr * gradient_of(spec, who, made[who], p)
                made[who] += 1
            versions[s] += 1
            delayed(x[s], m[s], d[s], begins[who] - p, versions[s], 0.8, 0.9, 4)
            hand_out(who, now_s)
            maybe_up(s, now_s, ended(s))
        elif what == "up":
            above += 1
            delayed(z, zm, zd, value, above, 0.3, 0.5, 2)
            events.append((now_s + one_way_s * who, 2, "merge", who, z.clone()))
        else:
            x[who] = 0.75 * x[who] + 0.25 * value
            y[who], merged[who], away[who] = x[who].clone(), versions[who], False
            maybe_up(who, now_s, ended(who))
    assert above == len(out.asynchronous.result.merges) > 8
    assert {one.server for one in out.asynchronous.result.merges if one.age} and versions[0] + versions[1] == (
        out.asynchronous.result.versions
    )
    assert out.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, z), rel=1e-6)


@pytest.mark.parametrize("how", [{}, {"buffer_size": 4}, {"buffer_size": 4, "synchronous": True, "grace_period": 0.2}])
def test_one_local_server_that_passes_all_on_is_the_server(how: dict[str, Any]) -> None:
    """Every version up, taken whole (lr 1, no momentum), merged whole (alpha 1); no two workers end together."""
    whole = {"groups": 1, "merge_period": 1, "merge_weight": 1.0, "lr": 1.0, "momentum": 0.0, "buffer_size": 1}
    own = {"speeds": [1.0, 0.93, 0.57, 0.31], "network": {"latency": 0, "bandwidth": "100 Tbit/s"}}
    below, alone = trained(DILOCO, how | {"hierarchy": whole}, **own), trained(DILOCO, how, **own)
    np.testing.assert_allclose(below.history.loss, alone.history.loss, rtol=1e-6)
    ends = [each.history.last_evaluation()["loss"] for each in (below, alone)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"method": DILOCO | {"asynchronous": {"hierarchy": {"groups": 5}}}}, "hierarchy.groups: got 5; expected at"),
        ({"method": DILOCO | {"asynchronous": {"hierarchy": {"groups": 0}}}}, "hierarchy.groups: got 0"),
        (
            {"method": DILOCO | {"asynchronous": {"hierarchy": {"groups": 2, "merge_weight": 0}}}},
            "hierarchy.merge_weight: got 0",
        ),
        ({"method": DDP | {"asynchronous": {"hierarchy": {"groups": 2}}}}, "asynchronous.hierarchy: got"),
        (
            {"method": DILOCO | {"asynchronous": {"participants": 2, "hierarchy": {"groups": 2}}}},
            "participants: got 2; expected none with hierarchy",
        ),
        (
            {"method": DILOCO | {"asynchronous": {"buffer_size": 3, "synchronous": True, "hierarchy": {"groups": 2}}}},
            "buffer_size: got 3; expected at most 2, the workers of a local server, which wait",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as told:
        validate(RunSpec, SHARED | fields)
    assert "\n" not in str(told.value)
