"""Random trainings for the property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from syncline.costmodel.collectives import ALGORITHMS, COLLECTIVES
from syncline.costmodel.link import Link
from syncline.sim import Call

EVERY_ALGORITHM = [(kind, algorithm) for kind, of in ALGORITHMS.items() for algorithm in of]

kinds = st.sampled_from(COLLECTIVES)
algorithms = st.sampled_from(EVERY_ALGORITHM)
sizes = st.floats(0.0, 1e8)
links = st.builds(Link, st.floats(0.0, 0.1), st.floats(1e6, 1e11))


@st.composite
def trainings(draw, max_workers=16, max_steps=4):
    """Arguments of ``run_lockstep``: jittered computing, any calls, equal or unequal links, equal or late starts."""
    workers, steps = draw(st.integers(1, max_workers)), draw(st.integers(1, max_steps))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    compute_s = np.full((steps, workers), draw(st.floats(0.0, 0.1)))
    if draw(st.booleans()):
        compute_s = compute_s * rng.lognormal(0.0, 0.5, compute_s.shape)
    if draw(st.booleans()):
        compute_s[:, draw(st.integers(0, workers - 1))] *= 10.0
    calls = draw(
        st.lists(st.builds(Call, st.integers(0, steps - 1), kinds, sizes, st.sampled_from(["", "x"])), max_size=4)
    )
    network = draw(st.one_of(links, st.lists(links, min_size=workers, max_size=workers)))
    starts_s = draw(st.one_of(st.none(), st.lists(st.floats(0.0, 1.0), min_size=workers, max_size=workers)))
    return compute_s, calls, network, starts_s
