"""Replications of a paper's claims, with equal effort for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.checkout import import_replication

if TYPE_CHECKING:
    from syncline.runs.sweep.listener import Listener


class Stage(Protocol):
    """A stage of a replication: its name, and the number of its trainings."""

    @property
    def name(self) -> str:
        """Return the name: ``search``, ``rerun``, ``finals``, ``extra NAME`` or ``measured NAME``."""
        ...

    @property
    def trainings(self) -> int:
        """Return the number of trainings."""
        ...


@checked
def replicate(
    name: str | Path,
    *,
    scale: str | None = None,
    seeds: int | Sequence[int] | None = None,
    most: int | None = None,
    time: float | str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    on_stage: Callable[[Stage], AbstractContextManager[Listener]] | None = None,
    on_expected: Callable[[Any], None] | None = None,
) -> Result:
    """Replicate a paper's claims: a search of equal effort for every method, finals on fresh seeds, and verdicts.

    The function needs a checkout of the repository, which has the replications. A second call with the same arguments
    continues from the last finished training.

    Args:
        name: the name of a bundled replication, or a YAML file.
        scale: ``cpu``, or one of the file's ``scales``, such as ``larger`` and ``gpu``.
        seeds: number of seeds of the finals, or their list; the file's by default.
        most: largest number of trainings in this call; all by default.
        time: time after which this call starts no more trainings, in seconds or with a unit: ``"10min"``.
        jobs: number of processes side by side; one per core by default. It changes no result.
        out: the folder; ``results/replication/NAME`` by default.
        on_stage: function from a stage to a context manager of the listener that is informed of its trainings.
        on_expected: function called before the first training with the number of trainings left and their expected
            time.

    Returns:
        The result with a row per comparison and the state of its claim; `Result.told` has ``stages``, ``effort``,
        ``chosen`` and ``left``.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted, before any
            training.

    >>> import syncline as sl
    >>> sl.replicate("mt-dao", most=0)
    Traceback (most recent call last):
    syncline.errors.SpecError: most: got 0; expected at least 1 training
    """
    return import_replication("replications.results").replication_result(
        name, scale=scale, seeds=seeds, max_trainings=most, time=time, jobs=jobs, out=out, on_stage=on_stage,
        on_expected=on_expected,
    )  # fmt: skip
