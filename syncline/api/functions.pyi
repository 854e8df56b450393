"""The functions that answer questions, for type checkers; ``python -m tests.api.stub`` wrote it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.api.result import Result
from syncline.api.trainings import SweepResult
from syncline.runs.report.page import ReportPage

def answer(question: Any, *progress: Any) -> Any: ...
def advise(
    model: Any,
    cluster: Any = None,
    *,
    network: Any = None,
    hardware: Any = None,
    workers: int | None = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    batch_tokens: str | float | None = None,
    sequence: int | None = None,
    budget: str | float | None = None,
    deadline: str | float | None = None,
    prices: Any = None,
    methods: Any = None,
    period: str | int | None = None,
    extrapolate: bool = False,
    every_plan: bool = False,
    strict: bool = False,
    failures: Any = None,
    recovery: str | None = None,
    restart: str | float | None = None,
    repair: str | float | None = None,
    checkpoint: Any = None,
    bandwidth: str | float | None = None,
) -> Result:
    """Rank the plans that train a model on a cluster, by time to equal loss if a published fit predicts their loss.

    A plan is a method between the replicas and a layout inside each replica. Every plan has its time, utilisation,
    memory, bytes sent over each network level, money and energy, with bounds. The result also says which plans tie,
    what decides the ranking, what would change it, and what is unknown.

    Args:
        model: Model: a name from 'syncline list models', a config.json, or fields.
        cluster: Cluster (network, hardware and number of workers): a name from 'syncline list clusters', or a YAML
            file.
        network: Network, in place of a cluster; needs hardware and workers.
        hardware: Hardware of each worker, in place of the cluster's; a name from 'syncline list hardware'.
        workers: Number of workers; by default all workers of the cluster.
        tokens: Number of tokens of data-parallel training, as in 140B; by default 20 per parameter.
        target_loss: Loss that every plan has to reach, in nats per token; replaces tokens.
        batch_tokens: Number of tokens in a step of all workers, as in 2M, rounded to whole sequences; by default
            between the best batches of published fits.
        sequence: Number of tokens in a training sequence; by default the model's.
        budget: Largest cost of the training, as in 50k; needs prices.
        deadline: Longest time of the training, as in 30d.
        prices: List of prices, for the cost in money and energy: a YAML file, or a name from 'syncline list prices'.
        methods: Method between replicas: a name from 'syncline list methods'; repeatable; by default all methods that
            'advise' knows.
        period: Number of steps between exchanges, or preset for the methods' own; by default 30, 100, 300 and 1000 are
            tried, and methods without a period have 30.
        extrapolate: Also predict losses outside the range of the fits, marked as extrapolated.
        every_plan: List all plans, and all sentences on what decides and what is unknown.
        strict: Refuse an answer that rests on other machines, software, sizes or scales than were measured.
        failures: Failure rates: a name from 'syncline list failures', a worker's mean time between failures as in
            50000h, fields, or a YAML file.
        recovery: Recovery from failures: restart (all workers, from a checkpoint) or elastic (the others continue); by
            default what each method supports.
        restart: Time to start the processes again after a failure.
        repair: Time until a failed machine is back; by default 5.7 h.
        checkpoint: Time to write a checkpoint; or the fields of checkpoints: {'write_time': 60, 'mode': 'peer'}.
        bandwidth: Total bandwidth at which all workers write a checkpoint, as in 100GB/s; replaces the time.

    Returns:
        The result with a row per plan; `Result.json` also has ``ties``, ``thresholds`` and sentences.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def calibrate(
    spec: str | Path | None = None,
    *,
    logs: Sequence[str] | None = None,
    algorithm: str | None = None,
    workers: int | Sequence[int] = (2, 4),
    network: Any = None,
    sizes: str | Sequence[str | float] | None = None,
    budget: str | float | None = None,
    window: str | float | None = None,
    device: str = "auto",
    backend: str = "auto",
    timeout: str | float = "120 s",
    out: str | Path | None = None,
    **fields: Any,
) -> Result:
    """Measure collectives, training steps and wire formats on this machine, and write a cluster file for specs.

    With --from the file comes from logs instead: a network from nccl-tests or DeepSpeed's communication benchmarks, or
    links between places (kind: matrix) from iperf3, ping and tables of regions.

    Args:
        spec: Spec whose problem's training steps are timed; by default the problem digits.
        logs: Logs to make the network from, in place of measurements: outputs of nccl-tests, DeepSpeed's communication
            benchmarks, iperf3 -J, ping, or tables of regions.
        algorithm: Algorithm of the collectives in the logs: a name, or gloo or nccl; by default auto, the fastest for
            each call.
        workers: Numbers of processes to measure with, one after another.
        network: Network whose latency and bandwidth are known; by default both are fitted.
        sizes: Tensor sizes of the collectives; by default 4 B to 16 MiB.
        budget: Time for each collective and size; by default 150 ms.
        window: Time for the training steps, and again for the matrix products; by default 1 s.
        device: Device: auto, cpu or cuda.
        backend: Backend of torch.distributed: auto, gloo or nccl.
        timeout: Time without progress after which the processes are ended.
        out: Cluster file to write; by default a temporary file that goes with the result.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result; ``networks=`` and ``hardware=`` accept its ``json()["file"]``, and `Result.save` keeps that file.

    Raises:
        SynclineError: an argument is wrong, which the function reports before it measures; or a process died or hung.
    """
    ...

def collectives(
    workers: int | None = None,
    nbytes: str | float = "619 MiB",
    networks: Any = None,
    *,
    cluster: Any = None,
    collectives: str | Sequence[str] | None = None,
    algorithms: str | Sequence[str] | None = None,
    protocol: str = "eager",
    starts: Sequence[str | float] | None = None,
    strict: bool = False,
) -> Result:
    """Compare algorithms of collectives on a network: closed form, lockstep and event simulation.

    Args:
        workers: Number of workers; by default the cluster's, else the number of starts, else 8.
        nbytes: Size of the tensor, as in 619MiB; for a gather, the size of each worker's part.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        cluster: Cluster (network, hardware and number of workers): a name from 'syncline list clusters', or a YAML
            file.
        collectives: Collective, as in all_reduce; repeatable; by default all.
        algorithms: Algorithm, or auto, gloo or nccl, which choose one for each call; repeatable; by default all.
        protocol: When a message starts: eager (once the sender is ready) or rendezvous (once both sides are ready).
        starts: Time at which each worker enters the collective, as in 0,0,0,50ms.
        strict: Refuse an answer that rests on other machines, software, sizes or scales than were measured.

    Returns:
        The result with a row per algorithm; `Result.json` also has ``crossovers`` and ``choices``.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def compare(
    spec: Any = None,
    *,
    problem: Any = None,
    methods: Any = None,
    networks: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    out: str | Path | None = None,
    exact: bool = True,
    jobs: int | None = None,
    on_progress: Callable[[list[int]], None] | None = None,
    **fields: Any,
) -> Result:
    """Train several methods and time each of them on several networks: loss and clock.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        problem: The problem to train.
        methods: The methods; the first is the baseline of the speedups.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: Seeds of the repetitions; 3 stands for 0, 1, 2.
        compute: Computing time of a worker in a step.
        out: New folder for the results, with figures; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.
        jobs: Number of trainings in parallel; by default one per core. It changes no result.
        on_progress: Function called now and then with the completed steps of each method.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per method and network.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def goodput(
    failures: Any = "llama-3",
    workers: int | Iterable[int] = 1024,
    step_time: str | float = "10 s",
    *,
    recovery: str | Iterable[str] | None = None,
    interval: Any = None,
    checkpoint: Any = None,
    size: str | float | None = None,
    bandwidth: str | float | None = None,
    mode: str | None = None,
    restart: str | float | None = None,
    timeout: str | float | None = None,
    repair: str | float | None = None,
    spares: int | None = None,
    duration: str | float = "30 d",
    steps: int | None = None,
    seeds: int = 1,
    period: int = 1,
    strict: bool = False,
    **fields: Any,
) -> Result:
    """Simulate failures of a training, without training: goodput, lost work and the best checkpoint interval.

    Args:
        failures: Failure rates: a name from 'syncline list failures', a worker's mean time between failures as in
            50000h, fields, or a YAML file.
        workers: Numbers of workers, as in 1024,16384.
        step_time: Duration of a step without failures.
        recovery: Recovery from failures: restart (all workers, from a checkpoint), elastic (the others continue) or
            alone (each worker continues at its own pace); by default that of the failures.
        interval: Time between checkpoints; or best, or never; by default that of the failures.
        checkpoint: Time to write a checkpoint; or the fields of checkpoints: {'write_time': 60, 'mode': 'peer'}.
        size: Size of a checkpoint, as in 2TB.
        bandwidth: Total bandwidth at which all workers write a checkpoint, as in 100GB/s; replaces the time.
        mode: Checkpointing mode: blocking, asynchronous or peer.
        restart: Time to start the processes again after a failure.
        timeout: Time until the other workers detect a failure.
        repair: Time until a failed machine is back; by default 5.7 h.
        spares: Number of spare machines.
        duration: Duration to simulate.
        steps: Number of steps to simulate; replaces the duration.
        seeds: Number of simulations, each with its own random failures.
        period: Number of steps between exchanges, for recovery without restarts.
        strict: Refuse an answer that rests on other machines, software, sizes or scales than were measured.
        **fields: Other fields of the failures, by name: workers_per_node=8, outages='log.csv'.

    Returns:
        The result with a row per number of workers, recovery and interval.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def launch(
    spec: Any = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    device: str = "auto",
    backend: str = "auto",
    timeout: str | float = "120 s",
    workers_per_process: int = 1,
    port: int = 0,
    reproducible: bool = False,
    rejoins: int = 3,
    out: str | Path | None = None,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
    **fields: Any,
) -> Result:
    """Run a spec on real processes of this machine and measure it: one process per worker or pipeline stage.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        problem: The problem to train; cloudpickle packs an object for each process.
        method: The method.
        network: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            by default the spec's.
        workers: Number of workers, or of pipeline stages; by default the spec's.
        steps: T, the number of steps.
        seeds: Seeds of the repetitions; 3 stands for 0, 1, 2.
        device: Device: auto, cpu or cuda.
        backend: Backend of torch.distributed: auto, gloo or nccl.
        timeout: Time without progress after which the processes are ended.
        workers_per_process: Number of workers that share a process, as rows of its tensors.
        port: TCP port at which the processes meet; by default any free port.
        reproducible: Sum in the simulator's order, so that the results equal the simulator's bit for bit; sends the
            same number of bytes.
        rejoins: Number of restarts of each worker of an asynchronous method that dies.
        out: New folder for the results, with figures; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.
        on_progress: Function called now and then with the number of completed steps.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with the measured rows; `Result.json` also has ``simulated``. If a process died or hung, the result
        has the rows measured until then, the function warns, and `Result.failed` names the process.

    Raises:
        SynclineError: an argument is wrong; the check runs before the training starts.
    """
    ...

def loss(
    method: str | Iterable[str] = ("ddp-adam", "diloco"),
    parameters: Any = None,
    *,
    tokens: str | float | None = None,
    replicas: float | Iterable[float] = 2,
    period: float | Iterable[float] | None = None,
    batch_tokens: str | float | None = None,
    fit: str | None = None,
    target_loss: float | None = None,
    extrapolate: bool = False,
    every_fit: bool = False,
) -> Result:
    """Predict the loss of a training from published fits, with bounds; outside their range only if it is asked for.

    Args:
        method: Method: a name from 'syncline list fits', or several.
        parameters: Number of parameters of the model, as in 1.3B; without it, a target loss also finds the model.
        tokens: Number of tokens of the whole training; by default 20 per parameter.
        replicas: Number of replicas, for methods that have replicas.
        period: Number of steps between exchanges; by default those that the fit has seen.
        batch_tokens: Number of tokens in a step of all replicas; by default the optimum of the fit.
        fit: Name of the only fit to use, or all.
        target_loss: Loss to reach; the answer is the number of tokens, or the model.
        extrapolate: Also predict losses outside the range of the fits, marked as extrapolated.
        every_fit: Return a row for every fit that covers a method.

    Returns:
        The result with a row per training.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def pipeline(
    spec: Any = "pipeline-schedules",
    *,
    schedules: Any = None,
    stages: int | None = None,
    microbatches: int | None = None,
    forward: Any = None,
    backward: Any = None,
    backward_weight: Any = None,
    chunks: int | None = None,
    max_in_flight: Any = None,
    networks: Any = None,
    activation_bytes: str | float | None = None,
    replicas: int | None = None,
    gradient_bytes: Any = None,
    averaging: str | None = None,
    flushes: int | None = None,
    update: Any = None,
    placement: Any = None,
    jitter: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    exact: bool = True,
    **fields: Any,
) -> Result:
    """Simulate pipeline schedules without training: bubbles, delays and memory, with a picture and a trace.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        schedules: Schedule: a name from 'syncline list schedules', or several.
        stages: Number of stages.
        microbatches: Number of micro-batches in a step.
        forward: Time of the forward pass of a micro-batch, as in 20ms; or one time per stage.
        backward: Time of the backward pass of a micro-batch; or one time per stage.
        backward_weight: Time of the weight gradients, a part of the backward pass, for zb-h1.
        chunks: Number of layer chunks per stage, for interleaved.
        max_in_flight: Largest number of micro-batches in a stage at a time; or one number per stage.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        activation_bytes: Size of the activations that a micro-batch sends to the next stage, as in 8MB.
        replicas: Number of data-parallel replicas of the pipeline, which average their gradients.
        gradient_bytes: Size of the gradient that the replicas of a stage average, as in 300MB; or one size per stage.
        averaging: How replicas average: library (the network's), reduce+broadcast, direct, ring or another all-reduce.
        flushes: Number of runs of the schedule before an update.
        update: Time of an update of a stage's weights, as in 400ms; or one time per stage.
        placement: Where the ranks lie on a network: given, stages-inside, replicas-inside, search, or the place of each
            rank.
        jitter: Standard deviation of the logarithm of the computation times.
        seed: Seed of the jitter.
        out: New folder for the results, with figures; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per schedule and network.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a schedule cannot finish.
    """
    ...

def project(
    spec: Any = "project-gpt-160m",
    *,
    methods: Any = None,
    batch_tokens: str | float | None = None,
    period: str | int | None = None,
    placement: str | None = None,
    thresholds: bool | None = None,
    strict: bool = False,
    failures: Any = None,
    recovery: str | None = None,
    restart: str | float | None = None,
    repair: str | float | None = None,
    checkpoint: Any = None,
    bandwidth: str | float | None = None,
    networks: Any = None,
    cluster: Any = None,
    workers: int | Iterable[int] | None = None,
    model: Any = None,
    sequence: int | None = None,
    hardware: Any = None,
    overlap: str | None = None,
    algorithm: str | None = None,
    precision: str | None = None,
    layout: Any = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    **fields: Any,
) -> Result:
    """Project the time of a training in closed form, without training.

    Several models, hardware, workers, methods and networks give a row for every combination. With --grid, a parquet
    file holds any number of rows.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        methods: Method: a name from 'syncline list methods'; repeatable, and the first is the baseline.
        batch_tokens: Number of tokens in a step of all workers, as in 2M, rounded to whole sequences; by default
            between the best batches of published fits.
        period: Number of steps between exchanges of methods that exchange now and then, or preset for the methods' own;
            by default 30.
        placement: Where the ranks lie on a matrix of places: given, stages-inside, replicas-inside, or search for the
            fastest.
        thresholds: Print the bandwidths below which each method is faster than the baseline; by default with up to
            1,000 rows.
        strict: Refuse an answer that rests on other machines, software, sizes or scales than were measured.
        failures: Failure rates: a name from 'syncline list failures', a worker's mean time between failures as in
            50000h, fields, or a YAML file.
        recovery: Recovery from failures: restart (all workers, from a checkpoint) or elastic (the others continue); by
            default what each method supports.
        restart: Time to start the processes again after a failure.
        repair: Time until a failed machine is back; by default 5.7 h.
        checkpoint: Time to write a checkpoint; or the fields of checkpoints: {'write_time': 60, 'mode': 'peer'}.
        bandwidth: Total bandwidth at which all workers write a checkpoint, as in 100GB/s; replaces the time.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        cluster: Cluster (network, hardware and number of workers): a name from 'syncline list clusters', or a YAML
            file.
        workers: Numbers of workers, as in 8,64,512.
        model: Model: a name from 'syncline list models', a config.json, or module:make_model.
        sequence: Number of tokens in a training sequence; by default the model's.
        hardware: Hardware of each worker: a name from 'syncline list hardware', or a YAML file.
        overlap: Overlap of computation and communication: none, ddp or async.
        algorithm: Algorithm of all collectives: a name, or auto, gloo or nccl, which choose one for each call.
        precision: Number format of matrix products, and so of gradients, as in bf16, fp8 or fp32; by default the format
            of the hardware's peak.
        layout: Layout of a replica, as in tensor=8,pipeline=4; also data, context, expert, chunks, copies; repeatable.
        tokens: Number of tokens of the whole training, as in 140B, for its time and its loss.
        target_loss: Loss to reach, in place of tokens, for the time and tokens to it where a published fit covers the
            method.
        prices: List of prices, for the cost in money and energy: a YAML file, or a name from 'syncline list prices'.
        extrapolate: Also predict losses outside the range of the fits, marked as extrapolated.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per method and setting.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def replicate(
    name: str | Path,
    *,
    scale: str | None = None,
    seeds: int | Sequence[int] | None = None,
    most: int | None = None,
    time: float | str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    on_stage: Callable[[Any], Any] | None = None,
    on_expected: Callable[[Any], None] | None = None,
) -> Result:
    """Test the claims of a paper at equal tuning effort: a search for each method, final trainings, verdicts.

    The final trainings have fresh seeds. A second call with the same arguments continues from the last finished
    training. The replications are in a checkout of the repository.

    Args:
        name: Bundled replication, or a YAML file.
        scale: Scale of the replication: cpu, or another of its scales, as larger or gpu.
        seeds: Seeds of the final trainings: their number, as in 5, or a list, as in [3, 4].
        most: Largest number of trainings in this call; the same command continues later.
        time: Time during which this call starts trainings, as in 10min; the same command continues later.
        jobs: Number of processes in parallel; by default one per core.
        out: Folder of the replication; by default results/replication/NAME.
        on_stage: Function from a stage to a context manager of the listener that is informed of its trainings.
        on_expected: Function called before the first training with the number of trainings left and their expected
            time.

    Returns:
        The result with a row per comparison and the state of its claim; `Result.record` has ``stages``, ``effort``,
        ``chosen`` and ``left``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted, before any training; or the
            package is installed without a checkout of the repository.
    """
    ...

def report(what: Any, out: str | Path | None = None, *, title: str = "") -> ReportPage:
    """Write results to one HTML page that works offline: tables, charts and caveats.

    Args:
        what: Results, or the folders of results; one or several.
        out: HTML file to write; an existing report is replaced. By default no file is written.
        title: Title of the page; by default the names of the runs.

    Returns:
        The page.

    Raises:
        SynclineError: a folder does not exist, is not a result's, or is incomplete; or the file to replace is no
            report.
    """
    ...

def reproduce(paper: str | None = None) -> Result:
    """Recompute the numbers of the papers: where they agree, where they differ, and which document explains it.

    Args:
        paper: Paper: curvadion, demo, mt-dao, basis-rotation or lion-cub; by default all.

    Returns:
        The result with a row per number; `Result.json` also has ``claims``.

    Raises:
        SynclineError: there is no such paper, or the package is installed without a checkout of the repository.
    """
    ...

def run(
    spec: Any = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    scale: str | None = None,
    out: str | Path | None = None,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
    **fields: Any,
) -> Result:
    """Train one method and time it on one network, in full detail; or run a study, which has no network.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        problem: The problem to train.
        method: The method.
        network: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            by default the spec's.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: Seeds of the repetitions; 3 stands for 0, 1, 2.
        compute: Computing time of a worker in a step.
        scale: Scale of the study, as in gpu, if the spec has scales.
        out: New folder for the results, with figures; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.
        on_progress: Function called now and then with the number of completed steps.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per seed; for a study, the rows of the study.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def solve(
    variable: str,
    spec: Any = "project-gpt-160m",
    *,
    methods: Any = None,
    deadline: str | float | None = None,
    budget: str | float | None = None,
    step_time: str | float | None = None,
    utilisation: str | float | None = None,
    compute_utilisation: str | float | None = None,
    exposed: str | float | None = None,
    speedup: str | float | None = None,
    over: str | None = None,
    loss_penalty: str | float | None = None,
    fits: bool | None = None,
    batch_tokens: str | float | None = None,
    level: str | int | None = None,
    among: Any = None,
    most: int | None = None,
    best: bool = False,
    strict: bool = False,
    networks: Any = None,
    cluster: Any = None,
    workers: int | Iterable[int] | None = None,
    model: Any = None,
    sequence: int | None = None,
    hardware: Any = None,
    overlap: str | None = None,
    algorithm: str | None = None,
    precision: str | None = None,
    layout: Any = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    **fields: Any,
) -> Result:
    """Find what meets a target: bandwidth, latency, period, delay, workers or network.

    Each answer has an interval from the bounds of the time. If no value meets the target, the table says why.

    Args:
        variable: Variable to solve for: bandwidth, latency, period, delay, workers or network.
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        methods: Method: a name from 'syncline list methods'; repeatable; by default ddp-adam, diloco and streaming-
            diloco.
        deadline: Longest time of the whole training, as in 30d.
        budget: Largest cost of the whole training, as in 50k; needs prices.
        step_time: Longest mean time of a step, as in 2s.
        utilisation: Least share of the hardware's peak FLOP/s that the training uses, as in 0.4.
        compute_utilisation: Least share of a step's time spent computing, as in 80%.
        exposed: Largest share of a step's time spent waiting for the network, as in 5%.
        speedup: Least speedup over the baseline, as in 2.
        over: Baseline method of the speedup; by default ddp-adam.
        loss_penalty: Largest excess of the predicted loss over that of data parallelism, as in 1%.
        fits: Require that each worker's state fits into its memory; the default when solving for workers.
        batch_tokens: Number of tokens in a step of all workers, as in 2M, rounded to whole sequences; by default
            between the best batches of published fits.
        level: Level of the network to solve for, if it has several; by default the outermost.
        among: Links to choose from: names, or links; a mapping has the price of each per month.
        most: Largest number of workers to try; by default 16 times the cluster's workers.
        best: Allow any plan of 'syncline advise': methods, layouts and sharding.
        strict: Refuse an answer that rests on other machines, software, sizes or scales than were measured.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        cluster: Cluster (network, hardware and number of workers): a name from 'syncline list clusters', or a YAML
            file.
        workers: Numbers of workers, as in 8,64,512.
        model: Model: a name from 'syncline list models', a config.json, or module:make_model.
        sequence: Number of tokens in a training sequence; by default the model's.
        hardware: Hardware of each worker: a name from 'syncline list hardware', or a YAML file.
        overlap: Overlap of computation and communication: none, ddp or async.
        algorithm: Algorithm of all collectives: a name, or auto, gloo or nccl, which choose one for each call.
        precision: Number format of matrix products, and so of gradients, as in bf16, fp8 or fp32; by default the format
            of the hardware's peak.
        layout: Layout of a replica, as in tensor=8,pipeline=4; also data, context, expert, chunks, copies; repeatable.
        tokens: Number of tokens of the whole training, as in 140B, for its time and its loss.
        target_loss: Loss to reach, in place of tokens, for the time and tokens to it where a published fit covers the
            method.
        prices: List of prices, for the cost in money and energy: a YAML file, or a name from 'syncline list prices'.
        extrapolate: Also predict losses outside the range of the fits, marked as extrapolated.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per method, best first: ``holds`` says where the target is met, ``value`` is the solution,
        ``low`` and ``high`` are the solutions at the bounds of the clock. Each row also has `sl.project`'s row there.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...

def sweep(
    spec: Any = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    tune: Mapping[str, Any] | None = None,
    search: str | None = None,
    trials: int | None = None,
    equal_effort: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    out: str | Path | None = None,
    **fields: Any,
) -> SweepResult:
    """Train every combination of values, with several seeds each. Finished trainings are kept and never run again.

    Args:
        spec: A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.
        grid: Values by field: {'method.lr': [1e-3, 3e-3], 'network': ['10gbe', 'wan']}.
        problem: The problem to train.
        method: The method; several methods are a grid.
        network: The network that times the training.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: Number of seeds, as in 5, or a list of seeds, as in [3, 4]; by default the spec's.
        compute: Computing time of a worker in a step.
        tune: Lower and upper bound by field, for a search: {'method.lr': (1e-4, 1e-1)}.
        search: Search algorithm: optuna.
        trials: Number of trials for each combination of the grids.
        equal_effort: Train the same number of configurations of each method: the smallest that any method has.
        jobs: Number of processes in parallel; by default one per core.
        dask: Address of a dask scheduler whose workers run the trainings.
        out: Folder of the sweep, where a second call continues; by default a temporary one that goes with the result.
        **fields: Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).

    Returns:
        The result with a row per configuration and seed; `SweepResult.best` ranks the configurations.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted, before any
            training.
    """
    ...

def trace(
    what: str | Path | Callable[[], object] | Sequence[str | Path | Callable[[], object]] | None = None,
    *,
    workers: int = 4,
    networks: Any = None,
    hardware: Any = "a100",
    algorithm: str | None = None,
    host: str | None = None,
    target_loss: float | None = None,
    gpu: str = "auto",
    clock: str = "refuse",
    out: str | Path | None = None,
    exact: bool = True,
) -> Result:
    """Run an unmodified torch.distributed script, record its operations, and predict its time on networks.

    The script's own output goes to standard error. Syncline counts the script's operations and times them on the
    hardware.

    Args:
        what: A script, or a function without arguments that does the same; the first of several is the baseline of the
            speedups.
        workers: Number of ranks; each is a process.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        hardware: Hardware: a name from 'syncline list hardware', or measured[:SCALE] for the recorded times.
        algorithm: Algorithm of all collectives: a name, or auto, gloo or nccl, which choose one for each call.
        host: Whether the host runs ahead of its device, as with a GPU, or waits for it, as with a CPU; by default by
            the hardware.
        target_loss: Loss whose time to reach is reported; by default the highest of several scripts' final losses.
        gpu: GPUs that the script sees: none, or auto (CUDA_VISIBLE_DEVICES, else one for each rank).
        clock: Allow the script to make decisions by the clock, which is that of the recording; or refuse it.
        out: New folder for the results, with figures; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.

    Returns:
        The result with a row per script and network; `Result.json` also has ``sites``, ``links`` and ``losses``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a rank failed, and the
            message has its traceback.
    """
    ...

def whatif(
    record: Any,
    *,
    networks: Any = None,
    hardware: Any = "a100",
    algorithm: str | None = None,
    host: str | None = None,
    scale_bandwidth: float = 1.0,
    scale_latency: float = 1.0,
    scale_compute: float = 1.0,
    overlap: bool = True,
    compiled: bool = False,
    async_tp: bool = False,
    target_loss: float | None = None,
    out: str | Path | None = None,
    exact: bool = True,
) -> Result:
    """Replay recorded traces on other networks or hardware, and show what limits their step times.

    Nothing is run. Several records are compared with the first.

    Args:
        record: Folders of recorded traces; the first is the baseline.
        networks: Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s;
            repeatable, or several names separated by commas.
        hardware: Hardware: a name from 'syncline list hardware', or measured[:SCALE] for the recorded times.
        algorithm: Algorithm of all collectives: a name, or auto, gloo or nccl, which choose one for each call.
        host: Whether the host runs ahead of its device, as with a GPU, or waits for it, as with a CPU; by default by
            the hardware.
        scale_bandwidth: Factor on the bandwidth of all links.
        scale_latency: Factor on the latency of all links.
        scale_compute: Factor on the speed of computation.
        overlap: Let collectives run while a worker computes; otherwise a worker waits for each call at once.
        compiled: Join elementwise operations, as a compiler does.
        async_tp: Overlap collectives whose results are needed at once with the products next to them.
        target_loss: Loss whose time to reach is reported; by default the highest of several scripts' final losses.
        out: New folder for the results; by default a temporary one that goes with the result.
        exact: Refuse a folder that exists, instead of adding a number to its name.

    Returns:
        The result with a row per record and network; `Result.json` also has ``sites``, ``links``, ``losses`` and
        ``sensitivities``.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...
