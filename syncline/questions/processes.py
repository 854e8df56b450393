"""The questions on real processes: ``launch``, ``torchrun``, ``calibrate``, ``validate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option


class Launch(
    Question,
    panel=shared.PROCESSES,
    examples=(
        "syncline launch rosenbrock-mt-dao --workers 2 --set steps=200",
        "syncline launch pipeline-text --set stages=2",
        "syncline launch my-run.yaml --workers 4 --device cpu --backend gloo",
    ),
):
    """Run a spec on real processes of this machine and measure it: one process per worker or pipeline stage.

    Returns:
        The result with the measured rows; `Result.json` also has ``simulated``. If a process died or hung, the result
        has the rows measured until then, the function warns, and `Result.failed` names the process.

    Raises:
        SynclineError: an argument is wrong; the check runs before the training starts.
    """

    spec: Any = shared.spec(shell_default=REQUIRED, completion="specs_of:run,pipeline")
    fields: Mapping[str, Any] | None = shared.fields()
    problem: Any = shared.problem(help="The problem to train; cloudpickle packs an object for each process.")
    method: Any = shared.method()
    network: Any = shared.network()
    workers: int | None = option("Number of workers, or of pipeline stages; by default the spec's.", metavar="P")
    steps: int | None = shared.steps()
    seeds: Any = shared.seeds()
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    workers_per_process: int = option("Number of workers that share a process, as rows of its tensors.", 1, metavar="R")
    port: int = option("TCP port at which the processes meet; by default any free port.", 0, metavar="PORT")
    reproducible: bool = option(
        "Sum in the simulator's order, so that the results equal the simulator's bit for bit; sends the same number of "
        "bytes.", False,
    )  # fmt: skip
    rejoins: int = option("Number of restarts of each worker of an asynchronous method that dies.", 3, metavar="N")
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    on_progress: Callable[[int], None] | None = shared.on_progress()
    json: bool = shared.json()


class Torchrun(Question):
    """Run a spec in processes that torchrun started, one worker or more in each; or calibrate their machines."""

    spec: Any = shared.spec(help="A YAML file or a bundled spec.")
    fields: Mapping[str, Any] | None = shared.fields()
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    reproducible: bool = option("Sum in the simulator's order: its bits, for the same bytes.", False)
    workers_per_process: int = option("Number of workers that share a process, as rows of its tensors.", 1, metavar="R")
    out: Path | None = option("Folder, or cluster file, that rank 0 writes.", metavar="FOLDER")
    calibrate: bool = option("Do what 'syncline calibrate' does, and write cluster.yaml or the file of --out.", False)
    network: str | None = option("With --calibrate: latency and bandwidth, if known.", metavar="NET")
    sizes: str | None = option("With --calibrate: sizes of the collectives.")
    budget: str | None = option("With --calibrate: time for each collective.", metavar="TIME")
    window: str | None = option("With --calibrate: time for training steps.", metavar="TIME")


class Calibrate(
    Question,
    panel=shared.PROCESSES,
    examples=(
        "syncline calibrate",
        "syncline calibrate --workers 2,4 --out lab.yaml",
        "syncline calibrate --from nccl.log -o my-cluster.yaml",
        "syncline calibrate --from nccl.log --algorithm ring -o my-cluster.yaml",
        "syncline calibrate --from iperf/*.json -o lines.yaml",
        "syncline project --network cluster.yaml",
    ),
):
    """Measure collectives, training steps and wire formats on this machine, and write a cluster file for specs.

    With --from the file comes from logs instead: a network from nccl-tests or DeepSpeed's communication benchmarks, or
    links between places (kind: matrix) from iperf3, ping and tables of regions.

    Returns:
        The result; ``networks=`` and ``hardware=`` accept its ``json()["file"]``, and `Result.save` keeps that file.

    Raises:
        SynclineError: an argument is wrong, which the function reports before it measures; or a process died or hung.
    """

    spec: str | Path | None = shared.spec(
        help="Spec whose problem's training steps are timed; by default the problem digits.", description="",
        reader="text", completion="specs_of:run,compare",
    )  # fmt: skip
    logs: Sequence[str] | None = option(
        "Logs to make the network from, in place of measurements: outputs of nccl-tests, DeepSpeed's communication "
        "benchmarks, iperf3 -J, ping, or tables of regions.", flag="--from", metavar="FILE", repeatable=True,
        several=True,
    )  # fmt: skip
    algorithm: str | None = shared.algorithm(
        help="Algorithm of the collectives in the logs: a name, or gloo or nccl; by default auto, the fastest for each "
        "call.",
    )  # fmt: skip
    workers: int | Sequence[int] = option(
        "Numbers of processes to measure with, one after another.", (2, 4), shell_default="2,4", metavar="P,P",
        reader="process_counts",
    )  # fmt: skip
    fields: Mapping[str, Any] | None = shared.fields()
    network: Any = option("Network whose latency and bandwidth are known; by default both are fitted.", metavar="NET")
    sizes: str | Sequence[str | float] | None = option(
        "Tensor sizes of the collectives; by default 4 B to 16 MiB.", metavar="SIZE,SIZE", reader="text"
    )
    budget: str | float | None = option("Time for each collective and size; by default 150 ms.", metavar="TIME")
    window: str | float | None = option(
        "Time for the training steps, and again for the matrix products; by default 1 s.", metavar="TIME"
    )
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    out: str | Path | None = option(
        "Cluster file to write; by default cluster.yaml.",
        description="Cluster file to write; by default a temporary file that goes with the result.", metavar="FILE",
        flag="--out -o",
    )  # fmt: skip
    json: bool = shared.json()


class Validate(
    Question,
    panel=shared.PROCESSES,
    examples=(
        "syncline validate validate-compute",
        "syncline validate validate-compute --workers 2 --cluster cluster.yaml",
        "syncline validate vtrain-a100 --data folder-of-measurements",
        "syncline validate clusters",
        "syncline validate clusters --measurements mine.csv --json",
        "syncline validate clusters --measurements nccl.log --cluster my-cluster.yaml",
    ),
):
    """Compare predictions with independent measurements: errors, residuals, a figure.

    Specs of trainings (kind run or compare) are first predicted, and then run together between processes of this
    machine.
    """

    specs: Sequence[str] = option(
        "YAML files, or bundled specs (see 'syncline list specs').", REQUIRED, metavar="SPEC", positional=True,
        repeatable=True, completion="specs_of:run,compare,validate",
    )  # fmt: skip
    fields: Mapping[str, Any] | None = shared.fields()
    data: Path | None = option("Folder of the published measurements; by default the spec's.", metavar="FOLDER")
    measurements: Sequence[str] | None = option(
        "For 'clusters': a table or a log, predicted row by row: CSV with the columns of a bundled file, outputs "
        "of nccl-tests, DeepSpeed's communication benchmarks or iperf3 -J, a table of regions.",
        metavar="FILE", repeatable=True, several=True,
    )  # fmt: skip
    workers: str | None = option(
        "Numbers of processes for the trainings, as in 2,4; by default the spec's.", metavar="P,..."
    )
    cluster: Path | None = option(
        "Cluster file from 'syncline calibrate'; by default the calibration runs first. For 'clusters': the network "
        "of logged collectives, by default the preset of the GPUs that the log names.",
        metavar="FILE",
    )
    repeats: int = option("Number of measured runs of each training.", 5, metavar="N")
    out: str | Path | None = shared.out()
    json: bool = shared.json()
