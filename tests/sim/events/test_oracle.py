"""The core against the same semantics written plainly, an object per message and port, to the bit."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.collectives.table import ALGORITHMS, COLLECTIVES, algorithms_on
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.software_costs import GLOO, GlooCosts
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SynclineError
from syncline.sim import Collective, Compute, Recv, Round, Send, Wait, run_events
from syncline.sim.events import vectorised_assembly
from syncline.sim.program.instructions import First
from tests.sim.oracle.run import run_events as run_oracle

few = st.integers(0, 3).map(float)
"""So few numbers that much happens at one instant."""


def times(most=0.5):
    return few | st.floats(0.0, most)


@st.composite
def any_link(draw):
    half = draw(st.booleans())
    bandwidth = draw(st.sampled_from([1.0, 2.0, 3.0]) | st.floats(0.5, 1e3))
    upload = None if half or draw(st.booleans()) else draw(st.sampled_from([0.5, 1.0]))
    overhead_s = draw(st.sampled_from([0.0, 0.0, 0.25, 0.1]))
    gloo = draw(st.sampled_from([None, None, None, GlooCosts(0.125, ((2, 0.5),))]))
    duplex = "half" if half else "full"
    return Link(draw(times()), bandwidth, "", overhead_s, 1.0, upload, duplex, gloo)


@st.composite
def networks(draw):
    """Workers and what joins them."""
    what = draw(st.sampled_from(["equal", "each", "nodes", "sites", "graph"]))
    if what in ("equal", "each"):
        workers = draw(st.integers(1, 8))
        return workers, draw(any_link()) if what == "equal" else [draw(any_link()) for _ in range(workers)]
    group, groups = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    plain = any_link().map(lambda link: Link(link.latency_s, link.bandwidth_bytes_per_s, duplex=link.duplex))
    if what == "nodes":
        return group * groups, TwoLevel(group, draw(plain), draw(plain), draw(st.integers(1, group)))
    if what == "sites":
        return group * groups, Sites((group,) * groups, draw(plain), draw(plain))
    workers = draw(st.integers(2, 6))
    switches = draw(st.integers(1, 3))
    edges = [Edge(f"s{i}", f"s{i + 1}", draw(plain)) for i in range(switches - 1)]
    edges += [Edge(f"h{i}", f"s{draw(st.integers(0, switches - 1))}", draw(plain)) for i in range(workers)]
    return workers, Graph(tuple(f"h{i}" for i in range(workers)), tuple(edges))


@st.composite
def any_rounds(draw, ranks):
    """Rounds of no algorithm: any sends, also several of a worker, also rounds that are one and the same."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        pairs = draw(st.lists(st.permutations(range(ranks)).map(lambda order: order[:2]), min_size=1, max_size=6))
        senders, receivers = np.array(pairs).T
        size = draw(few | st.floats(0.0, 1e2))
        made += [Round(senders, receivers, size)] * draw(st.integers(1, 3))
    return tuple(made)


@st.composite
def collectives(draw, workers, network, key):
    group = None
    if draw(st.booleans()) and workers > 1:
        group = tuple(draw(st.permutations(range(workers)))[: draw(st.integers(1, workers))])
    ranks = workers if group is None else len(group)
    kind = draw(st.sampled_from(COLLECTIVES))
    algorithm, rounds = None, None
    what = draw(st.sampled_from(["default", "algorithm", "gloo", "rounds"]))
    if what == "algorithm":
        whole = group is None and not isinstance(network, list)
        algorithm = draw(st.sampled_from(algorithms_on(kind, network, workers) if whole else list(ALGORITHMS[kind])))
    elif what == "gloo":
        algorithm = GLOO.get(kind)
    elif what == "rounds" and ranks > 1:
        rounds = draw(any_rounds(ranks))
    stream = draw(st.sampled_from(["network", "network", "other"]))
    nbytes = draw(few.map(lambda n: 8 * n) | st.floats(0.0, 1e3))
    return Collective(kind, nbytes, key, "", key, algorithm, group, stream, rounds)


class Chosen:
    """What follows a choice: notes which it was."""

    def __init__(self, told, options):
        self.told, self.options = told, options

    def __call__(self, option):
        self.told.append(("chosen", option))
        others = [recv for recv in self.options if recv is not self.options[option]]
        return [Compute(0.5, effect=lambda: self.told.append("after")), *others]


@st.composite
def runs(draw):
    """Arguments of ``run_events``, made anew by each call of what is drawn, which is given a list to note in."""
    workers, network = draw(networks())
    actions = []
    for number in range(draw(st.integers(1, 8))):
        what = draw(st.sampled_from(["compute", "message", "choice", "collective", "collective", "wait"]))
        worker = draw(st.integers(0, workers - 1))
        if what == "compute":
            actions.append((what, worker, draw(times()), draw(st.booleans())))
        elif what in ("message", "choice") and workers > 1:
            others = [other for other in range(workers) if other != worker]
            senders = [draw(st.sampled_from(others)) for _ in range(draw(st.integers(1, 3)) if what == "choice" else 1)]
            sizes = [draw(few | st.floats(0.0, 1e2)) for _ in senders]
            stream = draw(st.sampled_from(["send", "send", "beside"]))
            actions.append((what, worker, senders, sizes, stream, number, draw(st.booleans())))
        elif what == "collective":
            actions.append((what, draw(collectives(workers, network, number)), draw(st.integers(0, workers))))
        else:
            actions.append(("wait", draw(st.booleans())))
    starts_s = draw(st.none() | st.lists(times(), min_size=workers, max_size=workers))
    rule = draw(st.sampled_from(["eager", "rendezvous"]))
    late = draw(st.sampled_from([None, None, "few", "any"]))

    def programs(told):
        out = [[] for _ in range(workers)]
        waits = [[] for _ in range(workers)]
        for what, *rest in actions:
            if what == "compute":
                worker, seconds, has_effect = rest
                effect = (lambda worker=worker: told.append(("computed", worker))) if has_effect else None
                out[worker].append(Compute(seconds, effect=effect))
            elif what in ("message", "choice"):
                worker, senders, sizes, stream, number, has_effect = rest
                options = []
                for i, (sender, size) in enumerate(zip(senders, sizes, strict=True)):
                    out[sender].append(Send(worker, size, (number, i), stream=stream))
                    effect = (lambda number=number: told.append(("received", number))) if has_effect else None
                    options.append(Recv(sender, (number, i), effect=effect))
                out[worker] += options if what == "message" else [First(options, Chosen(told, options))]
            elif what == "collective":
                collective, misses = rest
                for worker in collective.group or range(workers):
                    if collective.group is None and workers > 3 and worker == misses and misses > 6:
                        continue  # then nobody finishes it
                    out[worker].append(collective)
                    waits[worker].append(collective.key)
            else:
                for worker in range(workers):
                    for key in waits[worker]:
                        note = partial(told.append, ("waited", key, worker)) if rest[0] else None
                        out[worker].append(Wait(key, note))
                    waits[worker] = []
        return out

    def delay(told):
        if late is None:
            return None
        rng = np.random.default_rng(0)

        def seconds(sender, receiver):
            told.append((sender, receiver))
            return float(rng.integers(0, 3)) if late == "few" else float(rng.exponential())

        return seconds

    return lambda told: (programs(told), network, starts_s, rule, delay(told))


def outcome(run, of):
    """Everything that came of it: the history, what effects and delays were told in which order; or the error."""
    told = []
    try:
        timeline = run(*of(told))
    except SynclineError as error:
        return type(error).__name__, str(error), told
    columns = {name: (str(column.dtype), column.tolist()) for name, column in timeline.to_columns().items()}
    return columns, told


@settings(deadline=None, max_examples=60)
@given(runs(), st.booleans())
def test_the_core_tells_what_plain_objects_tell(of, by_columns):
    fewest = 1 if by_columns else vectorised_assembly.FEWEST
    with patch.object(vectorised_assembly, "FEWEST", fewest):
        assert outcome(run_events, of) == outcome(run_oracle, of)


@st.composite
def exchanges(draw):
    """The same of programs that only compute, send and receive, with tags of all kinds, in any order of the sends."""
    workers, network = draw(networks())
    tags = [*range(4), "1", ("a", 1), (True, "a"), True, 1.5, (1, ("a",))]
    sent = draw(
        st.lists(
            st.tuples(
                st.permutations(range(workers)).map(lambda order: order[:2]),
                st.sampled_from(tags),
                few | st.floats(0.0, 1e2),
                st.sampled_from(["send", "send", "beside"]),
                times(),
            ),
            max_size=30 if workers > 1 else 0,
        )
    )
    rule = draw(st.sampled_from(["eager", "rendezvous"]))
    wrong = draw(st.sampled_from([None] * 8 + ["source", "to", "self"]))

    def programs(_):
        out = [[] for _ in range(workers)]
        for (sender, receiver), tag, nbytes, stream, seconds in sent:
            out[sender] += [Compute(seconds, str(tag)), Send(receiver, nbytes, tag, 1, stream)]
            out[receiver].append(Recv(sender, tag, 2))
        if wrong == "source":
            out[0].append(Recv(workers, "x"))
        elif wrong is not None:
            out[0].append(Send(workers if wrong == "to" else 0, 1.0, "x"))
        return out, network, None, rule, None

    return programs


@settings(deadline=None, max_examples=60)
@given(exchanges())
def test_programs_assembled_by_columns_tell_what_plain_objects_tell(of):
    with patch.object(vectorised_assembly, "FEWEST", 1):
        assert outcome(run_events, of) == outcome(run_oracle, of)
