"""Lion Cub's Table 1 and Figure 2: costs of majority votes, as printed and as the sum of their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from replication.studies.papers.base import PaperTable, paper_table
from replication.theory.votes import VOTES, VotePart, vote_bits_per_parameter, vote_crossover, vote_parts, vote_s
from syncline.costmodel import Link, collective_s, rounds_and_block
from syncline.fields import Positive, Spec, Workers
from syncline.specs import Figures, ModelField, Record
from syncline.specs.cluster.clusters import LinkField

BITS_PER_S = Link(1.0, 1 / 8)
"""A link with α = 1 s and β = 1 s per bit, on which a time is a number of latencies plus a number of bits."""

MOST_MESSAGES = 20_000
"""Maximum number of messages for the event simulator; with more, its column stays empty."""


SLIPS = {
    "naive": "the server has P - 1 others to hear and to tell, not P; its port's messages follow each other, "
    "so that of their latencies only two are waited for",
    "efficient": "a gather brings (P - 1) N b to the server, not (P - 1) / P N b; a broadcast of 2 (P - 1) / P N b is "
    "a scatter and an all-gather, log2 P latencies each",
    "direct": "",
    "one-bit": "of N signs a worker keeps N / P, so that the all-to-all moves (P - 1) / P N",
}
"""Reasons why the printed row differs from our closed form, by vote."""


MOST_PLAYED = 4096
"""Maximum number of workers of a simulated collective; the messages of an all-to-all grow with its square."""


class VoteTableSpec(PaperTable):
    """Lion Cub's Table 1: what its four votes cost, as printed and by the collectives that they are made of."""

    kind: Literal["vote-table"]
    model: ModelField
    word_bits: int = Field(default=32, ge=1)
    workers: tuple[Annotated[int, Field(ge=1, le=MOST_PLAYED)], ...] = Field(min_length=1)
    networks: tuple[LinkField, ...] = Field(min_length=1)


class Mark(Spec):
    """A model and a network, with N β / α marked in a figure."""

    model: ModelField
    network: LinkField


class VoteFigureSpec(PaperTable):
    """Lion Cub's Figure 2: its Table 1 over the number of workers, at several ``ratios`` N β / α."""

    kind: Literal["vote-figure"]
    word_bits: int = Field(default=32, ge=1)
    workers: tuple[Workers, ...] = Field(min_length=1)
    ratios: tuple[Positive, ...] = Field(min_length=1)
    marks: tuple[Mark, ...] = ()


def table_rows(spec: VoteTableSpec) -> list[dict[str, Any]]:
    """Return a row per network, number of workers and vote: the paper's cost, our closed form, and simulated times."""
    return [
        _table_row(spec, link, workers, vote)
        for link in spec.networks
        for workers in spec.workers
        for vote in VOTES
    ]  # fmt: skip


def _table_row(spec: VoteTableSpec, link: Link, workers: int, vote: str) -> dict[str, Any]:
    parameters = spec.model.parameters
    parts = vote_parts(vote, workers, parameters, spec.word_bits)
    paper_s = float(vote_s(vote, workers, parameters, link, spec.word_bits))
    closed_s = _closed_s(parts, workers, link)
    simulated_s = {simulator: _played_s(parts, workers, link, simulator) for simulator in ("lockstep", "events")}
    return {
        "vote": vote,
        "network": link.name,
        "workers": workers,
        "parameters": parameters,
        "paper_latencies": float(vote_s(vote, workers, 0, BITS_PER_S, spec.word_bits)),
        "paper_bits_per_parameter": float(vote_bits_per_parameter(vote, workers, spec.word_bits)),
        "paper_s": paper_s,
        "collectives": " + ".join(f"{part.collective} ({part.algorithm})" for part in parts),
        "latencies": _closed_s([part._replace(nbytes=0.0) for part in parts], workers, Link(1.0, 1.0)),
        "bits_per_parameter": _closed_s(parts, workers, Link(0.0, 1 / 8)) / parameters,
        "closed_form_s": closed_s,
        "lockstep_s": simulated_s["lockstep"],
        "events_s": simulated_s["events"],
        "deviation": paper_s / closed_s - 1 if closed_s else 0.0,
        "slip": SLIPS[vote],
    }  # fmt: skip


def _closed_s(parts: Sequence[VotePart], workers: int, link: Link) -> float:
    """Return the seconds of these collectives one after another, in closed form."""
    return sum(float(collective_s(kind, workers, nbytes, link, algorithm)) for kind, nbytes, algorithm in parts)


def _played_s(parts: Sequence[VotePart], workers: int, link: Link, simulator: str) -> float | None:
    """Return the simulated time at which the last worker completes the collectives, in seconds.

    A worker starts each collective as soon as it has completed the previous one. The result is None if the event
    simulator would need too many messages.
    """
    from syncline.sim import collective_finish_s

    rounds = sum(int(rounds_and_block(kind, workers, nbytes, name)[0]) for kind, nbytes, name in parts)
    if simulator == "events" and rounds * workers > MOST_MESSAGES:
        return None
    starts_s = np.zeros(workers)
    for part in parts:
        starts_s = collective_finish_s(
            part.collective, workers, part.nbytes, link, part.algorithm, starts_s=starts_s, evaluator=simulator
        )
    return float(starts_s.max())


def figure_rows(spec: VoteFigureSpec) -> list[dict[str, Any]]:
    """Return a row per ratio N β / α and number of workers: each vote's cost in latencies, and the cheapest vote.

    Above ``crossover_ratio`` the one-bit vote is cheaper than the direct vote.
    """
    rows = []
    for ratio in spec.ratios:
        for workers in spec.workers:
            costs = {vote: _in_latencies(vote, workers, ratio, spec.word_bits) for vote in VOTES}
            rows.append(
                {"ratio": ratio, "workers": workers}
                | {f"{vote.replace('-', '_')}_over_alpha": cost for vote, cost in costs.items()}
                | {"fastest": min(costs, key=costs.__getitem__), "crossover_ratio": float(vote_crossover(workers))}
            )
    return rows


def _in_latencies(vote: str, workers: int, ratio: float, word_bits: int) -> float:
    """Return the cost of a vote in latencies at a ratio N β / α, by the paper's table."""
    latencies = float(vote_s(vote, workers, 0, BITS_PER_S, word_bits))
    return latencies + ratio * float(vote_bits_per_parameter(vote, workers, word_bits))


def ratio_of(parameters: int, link: Link) -> float:
    """Return N β / α of a model on a link: the time of one bit per parameter on the link, in latencies."""
    return float(parameters / (8 * link.goodput_bytes_per_s) / link.latency_s)


def vote_figure(spec: VoteFigureSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield a figure with a panel per ratio for the cost of each vote, and a panel for the crossover ratio."""
    from replication.figures.votes import votes_over_workers

    marks = {f"{mark.model.name}, {mark.network.name}": ratio_of(mark.model.parameters, mark.network)
             for mark in spec.marks}  # fmt: skip
    yield spec.name, votes_over_workers(rows, marks)


def _slips(rows: list[Record]) -> str:
    """Return a note with the collectives of each vote, and with the printed terms that differ from them."""
    slips = {row["vote"]: row["slip"] for row in rows if row["slip"]}
    collectives = {row["vote"]: row["collectives"] for row in rows}
    lines = [f"{vote}: {names}{f'; {slips[vote]}' if vote in slips else ''}." for vote, names in collectives.items()]
    return (
        "α: latencies. Bits: per parameter, one after another. Without (paper): by the collectives of the vote:\n"
        + ("\n".join(lines) + "\n")
    )


VOTE_COLUMNS = (
    "vote network workers paper_latencies latencies paper_bits_per_parameter bits_per_parameter paper_s closed_form_s "
    "lockstep_s events_s"
)
CROSSOVER_COLUMNS = (
    "ratio workers naive_over_alpha efficient_over_alpha direct_over_alpha one_bit_over_alpha fastest_vote "
    "crossover_ratio"
)

TABLE = paper_table(VoteTableSpec, table_rows, VOTE_COLUMNS, _slips, "workers")
FIGURE = paper_table(
    VoteFigureSpec, figure_rows, CROSSOVER_COLUMNS, "Cost in latencies α. ", "ratio", vote_figure,
    values={"fastest_vote": lambda row: row["fastest"]},
)  # fmt: skip
