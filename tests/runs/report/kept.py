"""Small results of several kinds, made once."""

from __future__ import annotations

from functools import cache

import syncline as sl

HARMFUL = '<script>document.title="taken"</script>&"\'\u2028'


@cache
def compared() -> sl.Result:
    """Two methods, of which the second has a name that is no harm, on two networks."""
    return sl.compare(
        problem={"kind": "rosenbrock", "noise_std": 1.0}, workers=4, steps=40, seeds=2, jobs=1, eval_every=4,
        methods=["ddp-adam", {"kind": "local", "lr": 0.01, "period": 8, "label": HARMFUL}],
        networks=["10gbe", sl.Link("20 ms", "1 Gbit/s", name="dsl")], compute={"seconds": "1 ms"},
    )  # fmt: skip


@cache
def ran() -> sl.Result:
    """One method on one network."""
    return sl.run({"kind": "run", "name": "bowl", "problem": {"kind": "quadratic", "spectrum": [1.0, 0.1]}},
                  method="ddp-sgdm", network="wan", workers=2, steps=20, seeds=2, eval_every=5,
                  compute={"seconds": 1e-3})  # fmt: skip
