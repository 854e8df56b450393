"""On a cluster of dask.distributed the same bits, and nothing lost when a worker dies."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from distributed import LocalCluster

from syncline.errors import SynclineError
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep import jobs
from tests.runs.sweep.small import small_sweep
from tests.runs.sweep.test_sweep import contents


@pytest.fixture
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as found:
        yield found


def test_a_cluster_gives_the_same_bits_and_goes_on_where_it_was(cluster, tmp_path):
    here = small_sweep(tmp_path / "here")
    there = small_sweep(tmp_path / "there", dask=cluster.scheduler_address)
    assert there.rows == here.rows and contents(tmp_path / "there") == contents(tmp_path / "here")
    assert small_sweep(tmp_path / "there", dask=cluster.scheduler_address).repeated == 6


def test_a_worker_with_other_code_is_refused_in_one_line(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "code_version", lambda: "syncline 0")
    with pytest.raises(SynclineError, match=r"^a dask worker has another version of the code: syncline 0; here it is"):
        small_sweep(tmp_path / "out", dask=cluster.scheduler_address)


def test_a_stop_keeps_what_came_back(cluster, tmp_path):
    class Stopper(Listener):
        def finished(self, label, row):
            if not told:
                os.kill(os.getpid(), signal.SIGINT)
            told.append(label)

    told: list[str] = []
    result = small_sweep(tmp_path / "out", dask=cluster.scheduler_address, listener=Stopper())
    assert result.interrupted and 1 <= len(result.rows) == len(told)
    assert small_sweep(tmp_path / "out", dask=cluster.scheduler_address).repeated == len(told)


@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1:1"])
def test_an_address_without_a_scheduler_is_one_line(address, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.5)
    with pytest.raises(SynclineError, match=f"^--dask: got '{address}'; expected the address of a scheduler"):
        small_sweep(tmp_path / "out", dask=address)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_processes_of_a_cluster_give_the_same_bits_though_one_dies_in_mid_run(tmp_path):
    here = small_sweep(tmp_path / "here", overrides={"steps": 4000})
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as processes:

        def kill_one() -> None:
            while not (busy := [one for one in processes.scheduler.workers.values() if one.processing]):
                time.sleep(0.05)
            time.sleep(1.0)
            pid = processes.workers[busy[0].name].pid
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        killed: list[int] = []
        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        there = small_sweep(tmp_path / "there", overrides={"steps": 4000}, dask=processes.scheduler_address)
        killer.join(60)
    assert killed and there.rows == here.rows and contents(tmp_path / "there") == contents(tmp_path / "here")
