"""The question of ``syncline pipeline``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import Question, option


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
