"""The questions about clock or loss without a training: ``collectives``, ``pipeline``, ``goodput``, ``loss``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, Question, option


class Collectives(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline collectives --workers 8 --bytes 619MiB --network 10gbe",
        "syncline collectives --collective all_reduce --network wan --plot cost.png",
        "syncline collectives --collective all_reduce --cluster two-sites-a100",
        "syncline collectives --starts 0,0,0,50ms",
    ),
):
    """Compare algorithms of collectives on a network: closed form, lockstep and event simulation.

    Returns:
        The result with a row per algorithm; `Result.json` also has ``crossovers`` and ``choices``.

    >>> import syncline as sl
    >>> result = sl.collectives(4, "1 MB", "10gbe", collectives="all_reduce", algorithms=["ring", "tree"])
    >>> [(row["algorithm"], row["fastest"]) for row in result.rows]
    [('ring', True), ('tree', False)]
    """

    workers: int | None = option(
        "Number of workers; by default the cluster's, else the number of starts, else 8.", in_order=True, metavar="P"
    )
    nbytes: str | float = option(
        "Size of the tensor, as in 619MiB; for a gather, the size of each worker's part.", "619 MiB", in_order=True,
        flag="--bytes", metavar="SIZE",
    )  # fmt: skip
    networks: Any = shared.networks(in_order=True)
    cluster: Any = shared.cluster()
    collectives: str | Sequence[str] | None = option(
        "Collective, as in all_reduce; repeatable; by default all.", flag="--collective", metavar="NAME",
        completion="collectives", repeatable=True,
    )  # fmt: skip
    algorithms: str | Sequence[str] | None = option(
        "Algorithm, or auto, gloo or nccl, which choose one for each call; repeatable; by default all.",
        flag="--algorithm", metavar="NAME", completion="algorithms", repeatable=True,
    )  # fmt: skip
    protocol: str = option(
        "When a message starts: eager (once the sender is ready) or rendezvous (once both sides are ready).", "eager",
        metavar="PROTOCOL", completion=("eager", "rendezvous"),
    )  # fmt: skip
    starts: Sequence[str | float] | None = option(
        "Time at which each worker enters the collective, as in 0,0,0,50ms.", metavar="TIMES", reader="text"
    )
    plot: Path | None = shared.plot("Draw the time against the size, into a .png, .pdf or .svg file.")
    columns: str | None = shared.columns()
    strict: bool = shared.strict()
    json: bool = shared.json()


class Pipeline(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline pipeline --stages 4 --microbatches 8 --schedule gpipe,1f1b",
        "syncline pipeline --forward 20ms --network 10gbe --activation-bytes 8MB",
        "syncline pipeline pipeline-gpt-350m",
        "syncline pipeline my-pipeline.yaml --averaging direct --placement search",
    ),
):
    """Simulate pipeline schedules without training: bubbles, delays and memory, with a picture and a trace.

    Returns:
        The result with a row per schedule and network.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a schedule cannot finish.

    >>> import syncline as sl
    >>> result = sl.pipeline(schedules=["gpipe", "1f1b"], stages=4, microbatches=8, forward="10 ms", backward="20 ms")
    >>> [(row["schedule"], round(row["makespan_s"], 3), round(row["bubble"], 3)) for row in result.rows]
    [('gpipe', 0.33, 0.273), ('1f1b', 0.33, 0.273)]
    """

    spec: Any = shared.spec(default="pipeline-schedules", completion="specs_of:pipeline")
    fields: Mapping[str, Any] | None = shared.fields()
    schedules: Any = option(
        "Schedule: a name from 'syncline list schedules', or several.", flag="--schedule", metavar="NAME,...",
        completion="schedules", reader="many_values", repeatable=True,
    )  # fmt: skip
    stages: int | None = option("Number of stages.", metavar="K")
    microbatches: int | None = option("Number of micro-batches in a step.", metavar="M")
    forward: Any = option(
        "Time of the forward pass of a micro-batch, as in 20ms; or one time per stage.", metavar="TIME,...",
        reader="values",
    )  # fmt: skip
    backward: Any = option(
        "Time of the backward pass of a micro-batch; or one time per stage.", metavar="TIME,...", reader="values"
    )
    backward_weight: Any = option(
        "Time of the weight gradients, a part of the backward pass, for zb-h1.", metavar="TIME,...", reader="values"
    )
    chunks: int | None = option("Number of layer chunks per stage, for interleaved.", metavar="V")
    max_in_flight: Any = option(
        "Largest number of micro-batches in a stage at a time; or one number per stage.", metavar="N,...",
        reader="values",
    )  # fmt: skip
    networks: Any = shared.networks()
    activation_bytes: str | float | None = option(
        "Size of the activations that a micro-batch sends to the next stage, as in 8MB.", metavar="SIZE", reader="yaml"
    )
    replicas: int | None = option(
        "Number of data-parallel replicas of the pipeline, which average their gradients.", metavar="D"
    )
    gradient_bytes: Any = option(
        "Size of the gradient that the replicas of a stage average, as in 300MB; or one size per stage.",
        metavar="SIZE,...", reader="values",
    )  # fmt: skip
    averaging: str | None = option(
        "How replicas average: library (the network's), reduce+broadcast, direct, ring or another all-reduce.",
        metavar="NAME",
    )  # fmt: skip
    flushes: int | None = option("Number of runs of the schedule before an update.", metavar="N")
    update: Any = option(
        "Time of an update of a stage's weights, as in 400ms; or one time per stage.", metavar="TIME,...",
        reader="values",
    )  # fmt: skip
    placement: Any = option(
        "Where the ranks lie on a network: given, stages-inside, replicas-inside, search, or the place of each rank.",
        metavar="RULE", reader="yaml",
    )  # fmt: skip
    jitter: float | None = option("Standard deviation of the logarithm of the computation times.", metavar="SIGMA")
    seed: int | None = option("Seed of the jitter.", metavar="N")
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    json: bool = shared.json()


class Goodput(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline goodput --workers 1024,16384 --checkpoint 30s --restart 10min",
        "syncline goodput --failures 50000h --checkpoint 1min --interval 10min,1h,best",
        "syncline goodput --failures failures.yaml --recovery restart,elastic,alone",
    ),
):
    """Simulate failures of a training, without training: goodput, lost work and the best checkpoint interval.

    Returns:
        The result with a row per number of workers, recovery and interval.

    >>> import syncline as sl
    >>> (row,) = sl.goodput("llama-3", 16384, restart="10 min", checkpoint={"write_time": 30}).rows
    >>> round(row["best_interval_s"]), round(row["goodput"], 2)
    (798, 0.87)
    """

    failures: Any = shared.failures(default="llama-3", in_order=True)
    workers: int | Iterable[int] = option(
        "Numbers of workers, as in 1024,16384.", 1024, in_order=True, metavar="P,...", reader="values"
    )
    step_time: str | float = option("Duration of a step without failures.", "10 s", in_order=True, metavar="TIME")
    recovery: str | Iterable[str] | None = option(
        "Recovery from failures: restart (all workers, from a checkpoint), elastic (the others continue) or alone "
        "(each worker continues at its own pace); by default that of the failures.", metavar="HOW,...", reader="words",
    )  # fmt: skip
    interval: Any = option(
        "Time between checkpoints; or best, or never; by default that of the failures.", metavar="TIME,...",
        reader="words",
    )  # fmt: skip
    checkpoint: Any = shared.checkpoint()
    size: str | float | None = option("Size of a checkpoint, as in 2TB.", metavar="SIZE")
    bandwidth: str | float | None = shared.bandwidth()
    mode: str | None = option("Checkpointing mode: blocking, asynchronous or peer.", metavar="HOW")
    restart: str | float | None = shared.restart()
    timeout: str | float | None = option("Time until the other workers detect a failure.", metavar="TIME")
    repair: str | float | None = shared.repair()
    spares: int | None = option("Number of spare machines.", metavar="S")
    duration: str | float = option("Duration to simulate.", "30 d", flag="--for", metavar="TIME")
    steps: int | None = option("Number of steps to simulate; replaces the duration.", metavar="T")
    seeds: int = option("Number of simulations, each with its own random failures.", 1, metavar="S")
    period: int = option("Number of steps between exchanges, for recovery without restarts.", 1, metavar="H")
    fields: Mapping[str, Any] | None = option(
        "Other fields of the failures, by name: workers_per_node=8, outages='log.csv'.", place=PYTHON
    )
    strict: bool = shared.strict()
    json: bool = shared.json()


class Loss(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline loss 1.3B --replicas 2,4,8",
        "syncline loss 7B --tokens 280B --method diloco --period 100 --extrapolate",
        "syncline loss --target-loss 2.4 --method diloco",
    ),
):
    """Predict the loss of a training from published fits, with bounds; outside their range only if it is asked for.

    Returns:
        The result with a row per training.

    >>> import syncline as sl
    >>> [(row["method"], round(row["loss"], 3)) for row in sl.loss(["ddp-adam", "diloco"], "1.3B", replicas=4).rows]
    [('ddp-adam', 2.454), ('diloco', 2.473)]
    """

    method: str | Iterable[str] = option(
        "Method: a name from 'syncline list fits', or several.", ("ddp-adam", "diloco"), in_order=True,
        shell_default="ddp-adam,diloco", metavar="NAME,...", reader="words",
    )  # fmt: skip
    parameters: Any = option(
        "Number of parameters of the model, as in 1.3B; without it, a target loss also finds the model.",
        in_order=True, metavar="[N,...]", positional=True, reader="words",
    )  # fmt: skip
    tokens: str | float | None = option(
        "Number of tokens of the whole training; by default 20 per parameter.", metavar="D"
    )
    replicas: float | Iterable[float] = option(
        "Number of replicas, for methods that have replicas.", 2, metavar="M,...", reader="values"
    )
    period: float | Iterable[float] | None = option(
        "Number of steps between exchanges; by default those that the fit has seen.", metavar="H,...", reader="values"
    )
    batch_tokens: str | float | None = option(
        "Number of tokens in a step of all replicas; by default the optimum of the fit.", metavar="B"
    )
    fit: str | None = option("Name of the only fit to use, or all.", metavar="NAME")
    target_loss: float | None = option("Loss to reach; the answer is the number of tokens, or the model.", metavar="L")
    extrapolate: bool = shared.extrapolate()
    every_fit: bool = option("Return a row for every fit that covers a method.", False, place=PYTHON)
    json: bool = shared.json()
