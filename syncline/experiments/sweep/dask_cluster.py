"""Jobs on a cluster of dask.distributed. Its workers train and send results; the folders are written here."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, SynclineError
from syncline.experiments.shared_progress import SharedProgress
from syncline.experiments.sweep.identity import code_version
from syncline.experiments.sweep.pool import DIED, Done, Job, errors_of
from syncline.experiments.sweep.runs import Outcome, outcomes, write

POLL_S = 0.2
"""Between looks at whether to stop."""

PATIENCE_S = 30.0
"""For a scheduler that does not answer."""

_ONE_AT_A_TIME = threading.Lock()
"""A worker of several threads trains in one of them: torch's threads, on which bits depend, are its process's."""


def client_of(address: str) -> Any:
    """A client of the scheduler at an address, as ``tcp://10.0.0.1:8786``.

    Raises:
        SynclineError: dask.distributed is not installed, or nobody answers there.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SynclineError("--dask needs dask.distributed: pip install 'syncline[dask]'") from None
    try:
        return Client(address, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError, AssertionError) as error:  # the last: its thread was late to start
        said = " ".join(str(error).split()) or "no answer"
        raise SpecError("--dask", address, f"the address of a scheduler, as tcp://127.0.0.1:8786 ({said})") from None


def carried_out_by_dask(jobs: Sequence[Job], folder: Path, client: Any, progress: SharedProgress) -> Iterator[Done]:
    """Jobs as they are finished. One whose worker dies is begun again on another one, by dask.

    Raises:
        SynclineError: a worker has another version of the code.
    """
    from distributed import wait

    of_this = uuid.uuid4().hex  # the same job of another sweep is another task
    futures = {
        client.submit(_carried_out, job, pure=False, key=f"syncline-{job.runs[0].name}-{of_this}"): number
        for number, job in enumerate(jobs)
    }
    try:
        while futures and not progress.stopped:
            try:
                with client.as_current():
                    finished = wait(list(futures), timeout=POLL_S, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            for future in finished:
                number = futures.pop(future)
                yield number, _written(future, jobs[number], folder)
    finally:
        client.cancel(list(futures), force=True)


def _carried_out(job: Job) -> list[Outcome]:
    """On a worker."""
    if code_version() != job.runs[0].code:
        raise SynclineError(
            f"a dask worker has another version of the code: {code_version()}; here it is {job.runs[0].code}"
        )
    with _ONE_AT_A_TIME:
        made = outcomes(job.runs)
    assert made is not None  # nobody interrupts it
    return made


def _written(future: Any, job: Job, folder: Path) -> dict[str, str]:
    """What came back, written; the errors of what did not."""
    error = future.exception()
    if isinstance(error, SynclineError):
        raise error
    if error is not None:
        told = DIED if type(error).__name__ == "KilledWorker" else f"dask: {' '.join(str(error).split())}"
        return {run.name: told for run in job.runs}
    made = future.result()
    for outcome in made:
        write(folder, outcome)
    return errors_of(made)
