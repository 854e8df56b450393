"""Random trainings for the property tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from syncline.costmodel.collectives.table import ALGORITHMS, COLLECTIVES, algorithms_on
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.sim import Call

EVERY_ALGORITHM = [(kind, algorithm) for kind, of in ALGORITHMS.items() for algorithm in of]

kinds = st.sampled_from(COLLECTIVES)
algorithms = st.sampled_from(EVERY_ALGORITHM)
sizes = st.floats(0.0, 1e8)
links = st.builds(Link, st.floats(0.0, 0.1), st.floats(1e6, 1e11))
rules = st.sampled_from(["eager", "rendezvous"])


@st.composite
def any_links(draw):
    """A link with overhead, slower up than down or half duplex, as it may be."""
    alpha_s, bandwidth = draw(st.floats(0.0, 0.1)), draw(st.floats(1e6, 1e11))
    half = draw(st.booleans())
    return Link(
        alpha_s,
        bandwidth,
        overhead_s=draw(st.sampled_from([0.0, 1e-4])),
        efficiency=draw(st.sampled_from([1.0, 0.9])),
        upload_bytes_per_s=None if half or draw(st.booleans()) else bandwidth / draw(st.floats(1.0, 10.0)),
        duplex="half" if half else "full",
    )


@st.composite
def multi_levels(draw, link=any_links(), most=3):  # noqa: B008
    """Up to 24 workers on two levels or more, with cards or uplinks, oversubscribed or not, and rails."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=most).filter(lambda sizes: np.prod(sizes) <= 24))
    levels, workers = [Level(sizes[0], draw(link))], sizes[0]
    for number, size in enumerate(sizes[1:], start=1):
        rails = draw(st.sampled_from([one for one in range(1, workers + 1) if workers % one == 0]))
        over, through = draw(st.sampled_from([None, 1, 1.5, 2])), draw(st.booleans())
        cross_rail = draw(st.sampled_from([None, "inside"])) if number == 1 and not through else None
        levels.append(Level(size, draw(link), rails, over, through, cross_rail))
        workers *= size
    if len(sizes) > 2 and levels[2].shares_lower_links and levels[1].cross_rail is None and draw(st.booleans()):
        levels[1] = replace(levels[1], cross_rail="spine")
        levels[2] = replace(levels[2], rails=1, oversubscription=draw(st.sampled_from([1, 2])))
    return workers, MultiLevel(tuple(levels))


@st.composite
def joined_workers(draw):
    """Up to 24 workers and what joins them: equal links, a link each, nodes, sites or levels."""
    what = draw(st.sampled_from(["equal", "each", "nodes", "sites", "levels"]))
    if what == "levels":
        return draw(multi_levels())
    if what in ("equal", "each"):
        workers = draw(st.integers(1, 16))
        if what == "equal":
            return workers, draw(any_links())
        return workers, draw(st.lists(any_links(), min_size=workers, max_size=workers))
    group, groups = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    if what == "nodes":
        return group * groups, TwoLevel(group, draw(any_links()), draw(any_links()), draw(st.integers(1, group)))
    return group * groups, Sites((group,) * groups, draw(any_links()), draw(any_links()))


@st.composite
def collectives_anywhere(draw):
    """Arguments of ``collective_finish_s``: any collective, among any workers, who start together or not."""
    workers, network = draw(joined_workers())
    kind = draw(kinds)
    of = ALGORITHMS[kind] if isinstance(network, list) else algorithms_on(kind, network, workers)
    starts_s = draw(st.one_of(st.none(), st.lists(st.floats(0.0, 1.0), min_size=workers, max_size=workers)))
    return kind, workers, draw(sizes), network, draw(st.sampled_from(of)), starts_s


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
    sent = st.tuples(st.integers(0, steps - 1), kinds, sizes, st.sampled_from(["", "x"]))
    calls = [Call(*fields, label=label) for *fields, label in draw(st.lists(sent, max_size=4))]
    network = draw(st.one_of(links, st.lists(links, min_size=workers, max_size=workers)))
    starts_s = draw(st.one_of(st.none(), st.lists(st.floats(0.0, 1.0), min_size=workers, max_size=workers)))
    return compute_s, calls, network, starts_s
