"""Jobs on a cluster of dask.distributed: its workers train and return results, and this process writes the folders."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, SynclineError
from syncline.runs.processes.shared_progress import SharedProgress
from syncline.runs.sweep.identity import code_version
from syncline.runs.sweep.pool import DIED, Done, Job, errors_of
from syncline.runs.sweep.runs import Outcome, outcomes, write

POLL_S = 0.2
"""Seconds between checks for a stop."""

PATIENCE_S = 30.0
"""Seconds to wait for a scheduler's answer."""

_ONE_AT_A_TIME = threading.Lock()
"""Lock that lets a dask worker of several threads train in one of them.

Torch's threads, on which the bits of a result depend, belong to the whole process.
"""


def client_of(address: str) -> Any:
    """Return a client of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    Raises:
        SynclineError: dask.distributed is not installed, or no scheduler answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SynclineError("--dask needs dask.distributed: pip install 'syncline[dask]'") from None
    try:
        return Client(address, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError, AssertionError) as error:  # AssertionError: its thread started too late
        message = " ".join(str(error).split()) or "no answer"
        raise SpecError("--dask", address, f"the address of a scheduler, as tcp://127.0.0.1:8786 ({message})") from None


def run_jobs_on_dask(jobs: Sequence[Job], folder: Path, client: Any, progress: SharedProgress) -> Iterator[Done]:
    """Yield jobs as they finish. If a job's worker dies, dask starts the job on another one.

    Raises:
        SynclineError: a worker has another version of the code.
    """
    from distributed import wait

    sweep_id = uuid.uuid4().hex  # so that the same job of another sweep is a different task
    futures = {
        client.submit(_train, job, pure=False, key=f"syncline-{job[0].name}-{sweep_id}"): number
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


def _train(job: Job) -> list[Outcome]:
    """Train the runs of a job on a dask worker."""
    code = code_version()
    if code != job[0].code:
        raise SynclineError(f"a dask worker has another version of the code: {code}; here it is {job[0].code}")
    with _ONE_AT_A_TIME:
        results = outcomes(job)
    assert results is not None  # no user interrupts it
    return results


def _written(future: Any, job: Job, folder: Path) -> dict[str, str]:
    """Write the results of a job, and return the errors of runs without a result."""
    error = future.exception()
    if isinstance(error, SynclineError):
        raise error
    if error is not None:
        message = DIED if type(error).__name__ == "KilledWorker" else f"dask: {' '.join(str(error).split())}"
        return {run.name: message for run in job}
    results = future.result()
    for outcome in results:
        write(folder, outcome)
    return errors_of(results)
