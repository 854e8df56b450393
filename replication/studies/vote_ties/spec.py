"""The spec of a study of tied votes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from replication.studies.draws import DistributionField
from syncline.fields import Seed, Spec
from syncline.specs import Experiment, check_distinct

Share = Annotated[float, Field(ge=0, le=1)]


class PaperVotes(Spec):
    """Shares of all parameters that a paper measured for one number of workers."""

    workers: int = Field(ge=2, le=10**9)
    tie_rate: Share
    match_rate: Share
    flip_rate: Share


class VoteTiesSpec(Experiment):
    """Majority votes of independent workers: how often they tie, and how often they are the sign of the sum."""

    kind: Literal["vote-ties"]
    groups: tuple[PaperVotes, ...] = Field(min_length=1)
    distributions: tuple[DistributionField, ...] = Field(min_length=1)
    votes: int = Field(default=2**20, ge=1)
    seed: Seed = 0

    @model_validator(mode="after")
    def _distinct(self) -> VoteTiesSpec:
        check_distinct("groups", [f"{group.workers} workers" for group in self.groups])
        check_distinct("distributions", [distribution.name for distribution in self.distributions])
        return self
