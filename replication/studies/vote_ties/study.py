"""Pieces and rows of a study of tied votes: tie rates, and how often a vote is the sign of the sum."""

from __future__ import annotations

import math
from functools import partial

from replication.studies.draws import DistributionSpec, draw_of
from replication.studies.vote_ties.spec import VoteTiesSpec
from syncline.specs import Piece, Record, Report

BLOCK = 2**16
"""Number of votes computed at once."""


def tie_pieces(spec: VoteTiesSpec) -> list[Piece]:
    """Return a piece per number of workers and distribution; lengths are in votes."""
    pairs = [(group.workers, distribution) for group in spec.groups for distribution in spec.distributions]
    return [Piece(spec.votes, partial(vote_blocks, spec, *pair)) for pair in pairs]


def vote_blocks(spec: VoteTiesSpec, workers: int, distribution: DistributionSpec, report: Report) -> list[Record]:
    """Vote on independent draws in a simulated group, by the one-bit all-reduce that keeps ties.

    Returns:
        A record per block with its number of votes and its rates; no records after Ctrl-C.
    """
    from syncline.comm import SimulatedCommunicator
    from syncline.optim import OneBitVote, sign_agreement
    from syncline.problems.random_draws import torch_generator

    vote, comm, draw = OneBitVote(ties="zero"), SimulatedCommunicator(workers), draw_of(distribution)
    records: list[Record] = []
    try:
        for number, first in enumerate(range(0, spec.votes, BLOCK)):
            report(first)
            count = min(BLOCK, spec.votes - first)
            x = draw(torch_generator(spec.seed, "votes", workers, distribution.name, number), (workers, count))
            verdict = vote.verdict(x.sign(), comm, number)[0]
            rates = sign_agreement(verdict, x.sum(0))
            records.append({
                "workers": workers, "distribution": distribution.name, "block": number, "votes": count,
                "tie_rate": float((verdict == 0).double().mean()),
                **{name: float(rate) for name, rate in rates._asdict().items()},
            })  # fmt: skip
        report(spec.votes)
    except KeyboardInterrupt:
        return []
    return records


def tie_rows(spec: VoteTiesSpec, records: list[Record]) -> list[Record]:
    """Return a row per finished number of workers and distribution, beside the rates that the paper measured."""
    out = []
    for group in spec.groups:
        for distribution in spec.distributions:
            blocks = [r for r in records if (r["workers"], r["distribution"]) == (group.workers, distribution.name)]
            votes = sum(record["votes"] for record in blocks)
            if votes:
                measured = {
                    name: sum(record[name] * record["votes"] for record in blocks) / votes
                    for name in ("tie_rate", "match", "flip", "zero")
                }
                out.append({
                    "workers": group.workers, "distribution": distribution.name, "votes": votes,
                    "tie_rate": measured.pop("tie_rate"), "tie_rate_exact": tie_rate(group.workers),
                    "paper_tie_rate": group.tie_rate, **measured, "paper_match": group.match_rate,
                    "paper_flip": group.flip_rate,
                })  # fmt: skip
    return out


def tie_rate(workers: int) -> float:
    """Return the tie rate of P independent fair votes: ``C(P, P/2) / 2^P``; an odd number of votes never ties.

    >>> tie_rate(4), tie_rate(8)
    (0.375, 0.2734375)
    """
    return 0.0 if workers % 2 else math.comb(workers, workers // 2) / 2**workers
