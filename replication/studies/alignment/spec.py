"""The spec of an alignment study: Adam's slowdown under delayed gradients over the alignment of the Hessian."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from syncline.fields import Positive, Rate, Seed, Spec, Steps, refusal
from syncline.specs import Experiment, ProblemField

AlignmentBasis = Literal["ada-sgd", "adam", "rotated", "rotated-ema"]
"""``ada-sgd``: one second moment for all coordinates. ``rotated``: Adam in the eigenbasis of the exact Hessian at the
point of the gradient. ``rotated-ema``: Adam in the eigenbasis of a moving average of ``g g^T`` with decay ``beta2``."""

BASES = get_args(AlignmentBasis)

Range = Annotated[tuple[Positive, Positive], Field(description="lowest and highest, drawn log-uniformly")]


class RandomQuadraticsSpec(Spec):
    """Random quadratics of two variables like that of the study, to measure how often its ordering holds.

    For each quadratic the ``condition`` number and the start's distance ``radius``, in learning rates, are drawn
    log-uniformly; the start's direction in the eigenbasis, one of ``beta2`` and one of ``delay`` are drawn uniformly.
    The jitter and the target are those of the study, in units of the steepest curvature and the learning rate.
    """

    problems: int = Field(default=300, ge=1)
    seed: Seed = 0
    draws: int = Field(default=5, ge=1)
    condition: Range = (5.0, 100.0)
    radius: Range = (20.0, 160.0)
    beta2: tuple[Rate, ...] = Field(default=(0.1, 0.5, 0.9), min_length=1)
    delay: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 3, 4), min_length=1)

    @model_validator(mode="after")
    def _ordered(self) -> RandomQuadraticsSpec:
        for name in ("condition", "radius"):
            low, high = getattr(self, name)
            if low > high:
                raise refusal(name, (low, high), "the lowest first")
        return self


class TrapSpec(Spec):
    """Starts on the axes of a spiral, around the radius below which the valley's bend traps Adam on the axis.

    ``radii`` are in units of that radius. A start is free if it moves at least ``escape_distance`` learning rates along
    the valley within ``steps`` steps.
    """

    rates: tuple[Positive, ...] = Field(default=(0.05, 0.1), min_length=1)
    radii: tuple[Positive, ...] = Field(min_length=2)
    steps: Steps = 4000
    escape_distance: Positive = 10.0


class AlignmentSpec(Experiment):
    """Steps until something is reached, with late gradients and without, over the angle of a Hessian's eigenvectors.

    ``problem`` is a quadratic of two variables, or a spiral. The study rotates the quadratic's eigenvectors, and its
    starts with them, by each of ``angles_deg``. On the spiral a start is on the floor at each of these polar angles,
    near the spiral's radius. A point arrives at the ``target_loss``, or after a turn of its position by
    ``target_turn_deg`` around the origin. ``seeds`` are draws of the start.
    """

    kind: Literal["alignment"]
    problem: ProblemField
    angles_deg: tuple[float, ...] = Field(min_length=2)
    methods: tuple[AlignmentBasis, ...] = ("ada-sgd", "adam", "rotated")
    rates: tuple[Positive, ...] = Field(min_length=1)
    beta2: Rate = 0.9
    delay: int = Field(ge=1)
    steps: Steps
    target_loss: Positive | None = None
    target_turn_deg: Annotated[float, Field(gt=0, lt=180)] | None = None
    seeds: tuple[Seed, ...] = Field(default=(0,), min_length=1)
    random_quadratics: RandomQuadraticsSpec | None = None
    trap: TrapSpec | None = None

    @property
    def on_spiral(self) -> bool:
        """Return whether the problem is the spiral."""
        return bool(self.problem.name == "spiral")

    def warnings(self) -> list[str]:
        """Return one line per setting that is valid but probably a mistake."""
        lines = []
        if len(self.seeds) > 1 and not getattr(self.problem, "start_jitter", 0.0):
            lines.append(f"seeds: {len(self.seeds)} of them, but they all start at the same point")
        return lines

    @model_validator(mode="after")
    def _fits(self) -> AlignmentSpec:
        self._check_problem()
        for name in ("angles_deg", "methods", "rates", "seeds"):
            values: tuple[Any, ...] = getattr(self, name)
            if len(set(values)) < len(values):
                raise refusal(name, values, "values that differ from each other")
        if (self.target_loss is None) == (self.target_turn_deg is None):
            raise refusal("target_loss", self.target_loss, "a loss to reach, or target_turn_deg: one of the two")
        if self.random_quadratics and (self.on_spiral or self.target_loss is None):
            raise refusal("random_quadratics", "random quadratics", "none but for a quadratic with a target_loss")
        if self.trap and not self.on_spiral:
            raise refusal("trap", "starts on the axes", "none but for a spiral")
        return self

    def _check_problem(self) -> None:
        problem = self.problem
        if problem.name not in ("quadratic", "spiral") or len(getattr(problem, "spectrum", (1, 1))) != 2:
            raise refusal("problem", problem.name, "a quadratic with two eigenvalues, or a spiral")
        if problem.noise_std or problem.shift_std or getattr(problem, "rotation_seed", None) is not None:
            raise refusal("problem", problem.name, "one without noise_std, shift_std and rotation_seed")
        if problem.angle_deg:
            raise refusal("problem.angle_deg", problem.angle_deg, "none here: angles_deg takes its place")
