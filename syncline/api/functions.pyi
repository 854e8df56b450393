"""The functions that answer questions, for editors and type checkers; ``python -m tests.api.stub`` wrote it."""

from collections.abc import Iterable
from typing import Any

from syncline.api.result import Result

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
    extrapolate: bool = False,
    failures: Any = None,
    recovery: str | None = None,
    restart: str | float | None = None,
    checkpoint: Any = None,
    bandwidth: str | float | None = None,
) -> Result:
    """Rank the plans that train a model on a cluster, by time to equal loss if a published fit covers them.

    A plan is a method between the replicas and a layout inside each replica. Every plan has its time, utilisation,
    memory, bytes sent over each network level, money and energy, with bounds. The result also says which plans tie,
    what decides the ranking, what would change it, and what is unknown.

    Args:
        model: A transformer: a name of 'syncline list models', a config.json, or its fields.
        cluster: A name of 'syncline list clusters', or a YAML file: network, hardware and number of workers at once.
        network: A network in place of a cluster, beside hardware and workers.
        hardware: What computes, in place of a cluster's: a name of 'syncline list hardware', or fields.
        workers: Number of workers; by default all workers of the cluster.
        tokens: Training tokens of data parallelism, as 140B; by default 20 per parameter. Every other plan trains on
            the tokens that it needs for the same loss.
        target_loss: The loss in nats per token that every plan trains to, in place of tokens.
        batch_tokens: Tokens of all workers in a step; by default what published fits find best for the model's size, as
            plans are ranked by loss; project and solve keep 32,768 per worker.
        sequence: Tokens in a training sequence; by default the model's.
        budget: Largest cost of the training by the prices, as 50k.
        deadline: Longest time of the training, as 30d.
        prices: A list of prices, for money and energy: a YAML file, or the name of a bundled list.
        methods: Methods between replicas; by default all that advice tries.
        extrapolate: Predict losses also outside the range of the published fits, marked as such.
        failures: A name of 'syncline list failures', a worker's mean time between failures as 50000h, a YAML file, or
            fields.
        recovery: The reaction to a failure: restart (all, from a checkpoint) or reform (the others go on); by default
            as each method can.
        restart: Time to start the processes again after a failure.
        checkpoint: Time to write a checkpoint; or fields of the checkpoints.
        bandwidth: Rate at which all workers together write a checkpoint, in place of its time, as 100GB/s.

    Returns:
        The result with a row per plan; `Result.json` also has ``ties``, ``thresholds`` and sentences.

    Raises:
        SpecError: an argument is wrong; the message says which one, and which values are accepted.
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
    **fields: Any,
) -> Result:
    """Return the goodput of machines that fail, the lost work, and the best interval between checkpoints.

    Nothing is trained.

    Args:
        failures: A name of 'syncline list failures', a worker's mean time between failures as 50000h, a YAML file, or
            fields.
        workers: P, the number of workers, or several.
        step_time: Time of a step in which nothing fails.
        recovery: The reaction to a failure: restart (all, from a checkpoint), reform (the others go on) or alone
            (workers at their own pace), or several; by default that of the failures.
        interval: Work between checkpoints, best or never, or several; by default that of the failures.
        checkpoint: Time to write a checkpoint; or fields of the checkpoints.
        size: Size of a checkpoint, as 2TB.
        bandwidth: Rate at which all workers together write a checkpoint, in place of its time, as 100GB/s.
        mode: Mode of the checkpoints: blocking, asynchronous or peer.
        restart: Time to start the processes again after a failure.
        timeout: Time until the others notice a failure.
        repair: Time until a failed machine is back.
        spares: Number of machines that stand by.
        duration: Simulated time.
        steps: Number of steps after which the simulation ends, in place of a time.
        seeds: Number of repetitions with other failures; rows are means over them.
        period: Steps from one exchange to the next, for workers that recover alone; for reform, a failed worker loses
            its work since the last exchange.
        **fields: Other fields of the failures, by name: node=8, outages='log.csv'.

    Returns:
        The result with a row per number of workers, recovery and interval.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    ...
