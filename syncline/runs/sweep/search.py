"""The search of a sweep: optuna proposes configurations from the results of earlier ones."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from syncline.errors import SpecError, SynclineError, require_one_of
from syncline.files import parse_yaml
from syncline.runs.sweep.grid import Configuration, SweptSpec, combinations, configurations
from syncline.runs.sweep.identity import CLOCK_FIELDS, canonical
from syncline.runs.sweep.ranking import value_or_infinite
from syncline.seeds import seed64
from syncline.specs.grid import Grid, split_method

SEARCHES = ("optuna",)

TRIALS_AT_A_TIME = 8
"""Number of trials that a study proposes at once.

They can train side by side. The number is a choice, but the same for any number of processes, so that the trials are
the same, too.
"""

SEARCH_SEED = 0
"""Seed of all searches, so that equal searches propose equal configurations."""

Batches = Generator[list[Configuration], list[dict[str, Any]], None]
"""A generator that yields the next configurations to run, and receives the rows of their runs."""


@dataclass(frozen=True)
class Tuned:
    """A field of the spec that a search varies, log-uniformly between two numbers; over integers if both are integers.

    Args:
        origin: option or argument of the field, for errors.
        method: the only method with this field; empty if all methods have it.
        below_one: whether the numbers are distances of the field to 1, as for a decay rate, and not its values.
    """

    path: str
    low: float
    high: float
    origin: str
    method: str = ""
    below_one: bool = False

    def __post_init__(self) -> None:
        """Refuse a range that is not positive, empty or infinite, and a field that does not change the loss."""
        if not (0 < self.low < self.high < math.inf):
            raise SpecError(self.origin, f"{self.low}..{self.high}", "from a number above 0 to a larger one")
        if self.below_one and self.high > 1:
            raise SpecError(self.origin, f"1-{self.high}..1-{self.low}", "two numbers from 0 to below 1")
        if self.path.split(".")[0] in CLOCK_FIELDS:
            raise SpecError(self.origin, self.path, "a field that the loss depends on")

    @classmethod
    def parse(cls, text: str) -> Tuned:
        """Return the field and its range from a text of ``--tune``, such as ``method.lr=1e-4..1e-1``.

        A name before a colon, as in ``mt-dao:method.lr=...``, limits the field to this method.

        >>> rate = Tuned.parse("method.lr=1e-4..1e-1")
        >>> rate.path, rate.low, rate.high
        ('method.lr', 0.0001, 0.1)

        With ``1-`` before both ends the search draws the distance of the field to 1:

        >>> Tuned.parse("method.beta=1-0.1..1-0.001").value_range
        [0.9, 0.999]
        """
        path, _, values_text = text.partition("=")
        low, dots, high = values_text.partition("..")
        if not (path and dots):
            raise SpecError("--tune", text, "field.path=low..high, as in method.lr=1e-4..1e-1")
        option = f"--tune {path}"
        if low.startswith("1-") and high.startswith("1-"):  # the largest value has the smallest distance to 1
            smallest_distance, largest_distance = _yaml_value(high[2:]), _yaml_value(low[2:])
            distance = cls.from_ends(path, (smallest_distance, largest_distance), option, written=values_text)
            return replace(distance, below_one=True)
        return cls.from_ends(path, (_yaml_value(low), _yaml_value(high)), option, written=values_text)

    @property
    def value_range(self) -> list[float]:
        """Return the smallest and the largest value of the field, for tables."""
        return [self.value(self.high), self.value(self.low)] if self.below_one else [self.low, self.high]

    def value(self, number: float) -> float:
        """Return the value of the field for a number that the search draws between ``low`` and ``high``."""
        return 1 - number if self.below_one else number

    @classmethod
    def from_ends(cls, path: str, ends: Any, option: str = "", written: Any = None) -> Tuned:
        """Return a field with the two ends of its range.

        Args:
            path: path of the field, with a method and a colon before it if it is the field of this method alone.
            ends: two numbers.
            option: name of the range in errors; by default ``tune['PATH']``, an argument of `sweep` from Python.
            written: the ends as the user wrote them, for errors; by default ``ends``.
        """
        option = option or f"tune[{path!r}]"
        numbers = list(ends) if isinstance(ends, list | tuple) else []
        if len(numbers) != 2 or not all(type(number) in (int, float) for number in numbers):
            raise SpecError(option, ends if written is None else written, "two numbers, as in 1e-4..1e-1")
        method, field = split_method(path)
        low, high = numbers
        return cls(field, low, high, origin=option, method=method)

    def number_of(self, value: Any) -> float | None:
        """Return the number that stands for a value of the field; None if the value is outside the range."""
        if type(value) not in (int, float):
            return None
        number = 1 - value if self.below_one else value
        for end in (self.low, self.high):
            if math.isclose(number, end):  # 1 - 0.9 is a rounding error below 0.1
                return end
        return number if self.low < number < self.high else None

    def suggest(self, trial: Any) -> float:
        """Return the value of the field that optuna suggests for a trial."""
        if not self.below_one and isinstance(self.low, int) and isinstance(self.high, int):
            return int(trial.suggest_int(self.path, self.low, self.high, log=True))
        return self.value(float(trial.suggest_float(self.path, self.low, self.high, log=True)))

    def as_grid(self, *values: float) -> Grid:
        """Return a grid of the field with some of its values."""
        return Grid(self.path, values, self.origin, method=self.method)


@dataclass(frozen=True)
class Search:
    """The fields that a search tunes, and the number of its trials.

    Args:
        tuned: the fields, with their ranges.
        trials: number of trials for each combination of the grids.
        algorithm: the algorithm that proposes values, one of `SEARCHES`; ``optuna`` by default.
    """

    tuned: Sequence[Tuned] = ()
    trials: int | None = None
    algorithm: str | None = None

    @classmethod
    def from_options(
        cls, tune: Mapping[str, Any] | Sequence[Tuned], trials: int | None = None, algorithm: str | None = None
    ) -> Search:
        """Return a search over fields or over their ranges by path, ``{"method.lr": (1e-4, 1e-1)}``."""
        if isinstance(tune, Mapping):
            tune = [Tuned.from_ends(path, ends) for path, ends in tune.items()]
        return cls(tuple(tune), trials, algorithm)

    def batches(
        self, base: SweptSpec, grids: Sequence[Grid], seeds: Sequence[int] | None, *, equal_effort: bool
    ) -> tuple[Batches, int]:
        """Return the batches of configurations that the search proposes, and the number of all configurations.

        Each combination of the grids that the loss depends on has a study of optuna, with the same number of trials.
        The first trial of a study takes the spec's values, if they are in the ranges, so that the best trial is never
        worse than the spec. The result of a trial is the median of the last losses over the seeds. Trials depend on
        these results alone. Therefore a search that was stopped replays its finished runs, and then continues.

        Args:
            base: the part that all configurations share.
            seeds: the seeds; the spec's if None.
            equal_effort: refuse grids that give the methods different numbers of studies.

        Raises:
            SpecError: no field is tuned, there is no number of trials, or an end of a range cannot be trained; raised
                before any training.
            SynclineError: optuna is not installed.
        """
        if not self.tuned:
            raise SpecError("--tune", "nothing", "a field to search over, as in method.lr=1e-4..1e-1")
        if self.trials is None:
            raise SpecError("--trials", None, "the number of trials for each combination of the grids")
        algorithm = self.algorithm or "optuna"
        require_one_of("--search", algorithm, SEARCHES)
        if self.trials < 1:
            raise SpecError("--trials", self.trials, "at least 1")
        clock_grids = [grid for grid in grids if grid.path.split(".")[0] in CLOCK_FIELDS]
        loss_grids = [grid for grid in grids if grid not in clock_grids]
        # Configurations at both ends of the ranges: an error is raised here rather than after hours.
        configurations(base, [*grids, *(field.as_grid(field.value(field.low)) for field in self.tuned)], seeds)
        configurations(base, [*grids, *(field.as_grid(field.value(field.high)) for field in self.tuned)], seeds)
        studies = []
        for combination in combinations(loss_grids):
            # A combination has one method: what is for this method is for the whole study.
            study_grids = [replace(_single_value(grid, index), method="") for grid, index in combination]
            study = _Study(study_grids, self.tuned)
            study.enqueue_spec_values(base, [_single_value(grid, 0) for grid in clock_grids])
            studies.append(study)
        counts = Counter(study.method for study in studies)
        if equal_effort and len(set(counts.values())) > 1:
            counts_text = ", ".join(f"{method} {count}" for method, count in counts.items())
            expected = "the same number of combinations of the grids for each method, as each has its own search"
            raise SpecError("--equal-effort", counts_text, expected)
        num_configurations = self.trials * len(studies) * math.prod(len(grid.values) for grid in clock_grids)
        return _batches(base, studies, clock_grids, self.trials, seeds), num_configurations


NO_SEARCH = Search()
"""No search: every configuration is known before the first training."""


def _single_value(grid: Grid, index: int) -> Grid:
    """Return a grid with one of its values."""
    return replace(grid, values=(grid.values[index],), labels=(grid.labels[index],))


class _Study:
    """A study of optuna for one combination of the grids' values.

    Args:
        grids: the grids, each with a single value.
        tuned: the fields of the search; the study varies those for all methods and those for its method.
    """

    def __init__(self, grids: list[Grid], tuned: Sequence[Tuned]) -> None:
        try:
            import optuna
        except ImportError:
            raise SynclineError("--search optuna needs optuna: pip install 'syncline[optuna]'") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.grids, self.method = grids, ""
        for grid in grids:
            if grid.path == "method":
                self.method = str(grid.labels[0])
        # A study has one method, so that a field for this method is one for all: the empty name.
        self.tuned = [replace(field, method="") for field in tuned if field.method in ("", self.method)]
        values_of_study = canonical([[grid.path, grid.labels] for grid in grids])
        seed = seed64(SEARCH_SEED, "search", values_of_study) % 2**32  # a sampler takes 32 bits
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # ``constant_liar`` spreads out trials that are proposed before earlier ones have results.
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study, self._failed_state = optuna.create_study(sampler=sampler), optuna.trial.TrialState.FAIL

    def enqueue_spec_values(self, base: SweptSpec, clock_grids: Sequence[Grid]) -> None:
        """Make the spec's values the first trial; ``clock_grids`` have a single value each."""
        try:
            (configuration,) = configurations(base, [*self.grids, *clock_grids], seeds=None)
        except SpecError:  # the spec lacks a field that is searched over
            return
        first_trial = {}
        for field in self.tuned:
            number = field.number_of(value_at(configuration.spec, field.path))
            if number is not None:
                first_trial[field.path] = number
        if first_trial:
            self._study.enqueue_trial(first_trial)

    def ask(self) -> tuple[Any, list[Grid]]:
        """Return optuna's next trial, and the study's and the trial's grids, each with a single value."""
        trial = self._study.ask()
        return trial, [*self.grids, *(field.as_grid(field.suggest(trial)) for field in self.tuned)]

    def report(self, trial: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report to optuna the median loss of a trial's rows; a seed that diverged or failed counts as infinite.

        If all runs failed, the trial is reported as a failure.
        """
        if any(row["error"] is None for row in rows):
            self._study.tell(trial, median(value_or_infinite(row, "loss") for row in rows))
        else:
            self._study.tell(trial, state=self._failed_state)


def _batches(
    base: SweptSpec, studies: list[_Study], clock_grids: list[Grid], trials: int, seeds: Sequence[int] | None
) -> Batches:
    """Yield the configurations of the next trials, receive their rows by ``send``, and report them to the studies."""
    next_number = 1
    for first_trial in range(0, trials, TRIALS_AT_A_TIME):
        batch: list[Configuration] = []
        # Study, trial, and number of the trial's first configuration; None if its values cannot be trained.
        open_trials: list[tuple[_Study, Any, int | None]] = []
        for _ in range(min(TRIALS_AT_A_TIME, trials - first_trial)):
            for study in studies:
                trial, trial_grids = study.ask()
                try:
                    proposed = configurations(base, [*trial_grids, *clock_grids], seeds, first=next_number)
                except SpecError:  # for example, a size does not divide another one
                    proposed = []
                open_trials.append((study, trial, next_number if proposed else None))
                batch += proposed
                next_number += len(proposed)
        rows = yield batch
        for study, trial, first_number in open_trials:
            # The first configuration represents all, because those that differ only on the clock have the same loss.
            study.report(trial, [row for row in rows if row["configuration"] == first_number])


def value_at(spec: Any, path: str) -> Any:
    """Return the value of a spec's field at the dotted ``path``; None if there is no such field."""
    for name in path.split("."):
        try:
            spec = spec[int(name)] if name.isdigit() else getattr(spec, name, None)
        except (IndexError, TypeError):
            return None
    return spec


def _yaml_value(text: str) -> Any:
    """Return the value of a text in YAML; None, which no range accepts, if the text is not YAML."""
    with suppress(ValueError):
        return parse_yaml(text)
    return None
