"""Fields that several questions have, as in ``cluster: Any = shared.cluster()``, and base classes of questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from syncline.questions.declare import PYTHON, SHELL, Question, option

TRAIN, PROCESSES, CLOCK, RESULTS = "Train", "Real processes", "The clock alone", "Results"
SCRIPT, CATALOGUE = "A script of your own", "What there is"
"""Headings of the commands."""

spec = partial(
    option, help="A bundled spec (see 'syncline list specs'), a YAML file, or - for standard input.",
    description="A bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields.",
    metavar="SPEC", positional=True, in_order=True,
)  # fmt: skip
fields = partial(
    option, help="Set a field of the spec, as in --set steps=100; repeatable.",
    description="Other fields of the spec, by name (eval_every=10) or by path (a mapping of {'methods.1.period': 8}).",
    flag="--set", metavar="FIELD=VALUE", repeatable=True,
)  # fmt: skip
NETWORK = "Network: a name from 'syncline list networks', a YAML file, or LATENCY,BANDWIDTH as in 50us,10Gbit/s; {}."
network = partial(
    option, help=NETWORK.format("by default the spec's"), metavar="NET", completion="networks", reader="networks",
    repeatable=True,
)  # fmt: skip
networks = partial(
    option, help=NETWORK.format("repeatable, or several names separated by commas"), flag="--network", metavar="NET",
    completion="networks", reader="networks", repeatable=True,
)  # fmt: skip
cluster = partial(
    option,
    help="Cluster (network, hardware and number of workers): a name from 'syncline list clusters', or a YAML file.",
    metavar="NAME", completion="clusters",
)  # fmt: skip
hardware = partial(
    option, help="Hardware of each worker: a name from 'syncline list hardware', or a YAML file.", metavar="NAME,...",
    completion="hardware",
)  # fmt: skip
model = partial(
    option, help="Model: a name from 'syncline list models', a config.json, or module:make_model.", metavar="NAME,...",
    completion="models",
)  # fmt: skip
methods = partial(option, flag="--method", metavar="NAME,...", completion="methods", repeatable=True)
batch_tokens = partial(
    option, metavar="B",
    help="Number of tokens in a step of all workers, as in 2M, rounded to whole sequences; by default between the best "
    "batches of published fits.",
)  # fmt: skip
sequence = partial(option, help="Number of tokens in a training sequence; by default the model's.", metavar="T")
algorithm = partial(
    option, help="Algorithm of all collectives: a name, or auto, gloo or nccl, which choose one for each call.",
    metavar="NAME", completion="algorithms",
)  # fmt: skip
strict = partial(
    option, help="Refuse an answer that rests on other machines, software, sizes or scales than were measured.",
    default=False,
)  # fmt: skip
prices = partial(
    option,
    help="List of prices, for the cost in money and energy: a YAML file, or a name from 'syncline list prices'.",
    metavar="FILE",
)
extrapolate = partial(
    option, help="Also predict losses outside the range of the fits, marked as extrapolated.", default=False
)
seeds = partial(option, help="Seeds of the repetitions; 3 stands for 0, 1, 2.", place=PYTHON)
jobs = partial(option, help="Number of processes in parallel; by default one per core.", metavar="N", minimum=1)

json = partial(
    option, help="Print one JSON object to standard output; its 'rows' are the rows of the tables.", default=False,
    place=SHELL,
)  # fmt: skip
columns = partial(
    option, help="Columns of the tables: names from the rows of --json, separated by commas, or all.",
    metavar="NAME,...", place=SHELL,
)  # fmt: skip
csv = partial(option, help="CSV file for the rows.", metavar="FILE", place=SHELL)
plot = partial(option, metavar="FILE", place=SHELL)
out = partial(
    option, help="New folder for the results; runs/NAME by default.",
    description="New folder for the results, with figures; by default a temporary one that goes with the result.",
    metavar="FOLDER",
)  # fmt: skip
exact = partial(
    option, help="Refuse a folder that exists, instead of adding a number to its name.", default=True, place=PYTHON
)

device = partial(
    option, help="Device: auto, cpu or cuda.", default="auto", metavar="NAME", completion=("auto", "cpu", "cuda")
)
backend = partial(
    option, help="Backend of torch.distributed: auto, gloo or nccl.", default="auto", metavar="NAME",
    completion=("auto", "gloo", "nccl"),
)  # fmt: skip
timeout = partial(
    option, help="Time without progress after which the processes are ended.", default="120 s", metavar="TIME",
    reader="number_or_text",
)  # fmt: skip

failures = partial(
    option,
    help="Failure rates: a name from 'syncline list failures', a worker's mean time between failures as in 50000h, "
    "fields, or a YAML file.", metavar="WHICH", completion="failures",
)  # fmt: skip
restart = partial(option, help="Time to start the processes again after a failure.", metavar="TIME")
repair = partial(option, help="Time until a failed machine is back; by default 5.7 h.", metavar="TIME")
checkpoint = partial(
    option, help="Time to write a checkpoint.",
    description="Time to write a checkpoint; or the fields of checkpoints: {'write_time': 60, 'mode': 'peer'}.",
    metavar="TIME",
)  # fmt: skip
bandwidth = partial(
    option, help="Total bandwidth at which all workers write a checkpoint, as in 100GB/s; replaces the time.",
    metavar="RATE",
)  # fmt: skip

run_name = partial(
    option, help="Run folder, or its name in runs/ (see 'syncline runs').", metavar="RUN", completion="runs",
    positional=True,
)  # fmt: skip
folder = partial(option, help="Folder of the run folders, if RUN is a name.", default=Path("runs"), metavar="FOLDER")


class FailingMachines(Question):
    """The base class of questions that can account for failures of machines."""

    failures: Any = failures()
    recovery: str | None = option(
        "Recovery from failures: restart (all workers, from a checkpoint) or elastic (the others continue); by default "
        "what each method supports.", metavar="HOW",
    )  # fmt: skip
    restart: str | float | None = restart()
    repair: str | float | None = repair()
    checkpoint: Any = checkpoint()
    bandwidth: str | float | None = bandwidth()


class Projection(Question):
    """The base class of questions about projected times of the training in a spec."""

    spec: Any = spec(default="project-gpt-160m", completion="specs_of:project")
    fields: Mapping[str, Any] | None = fields()
    networks: Any = networks()
    cluster: Any = cluster()
    methods: Any = methods("Method: a name from 'syncline list methods'; repeatable.")
    workers: int | Iterable[int] | None = option("Numbers of workers, as in 8,64,512.", metavar="P,...", reader="text")
    model: Any = model(repeatable=True)
    sequence: int | None = sequence()
    hardware: Any = hardware(repeatable=True)
    overlap: str | None = option(
        "Overlap of computation and communication: none, ddp or async.", metavar="HOW",
        completion=("none", "ddp", "async"),
    )  # fmt: skip
    algorithm: str | None = algorithm()
    precision: str | None = option(
        "Number format of matrix products, and so of gradients, as in bf16, fp8 or fp32; by default the format of the "
        "hardware's peak.", metavar="FORMAT", completion=("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"),
    )  # fmt: skip
    layout: Any = option(
        "Layout of a replica, as in tensor=8,pipeline=4; also data, context, expert, chunks, copies; repeatable.",
        metavar="WAYS", completion=("tensor=", "context=", "data=", "pipeline=", "expert=", "chunks="),
        repeatable=True,
    )  # fmt: skip
    tokens: str | float | None = option(
        "Number of tokens of the whole training, as in 140B, for its time and its loss.", metavar="D"
    )
    target_loss: float | None = option(
        "Loss to reach, in place of tokens, for the time and tokens to it where a published fit covers the method.",
        metavar="L",
    )
    prices: Any = prices()
    extrapolate: bool = extrapolate()


problem = partial(option, help="The problem to train.", place=PYTHON)
method = partial(option, help="The method.", place=PYTHON)
workers = partial(option, help="M, the number of workers.", place=PYTHON)
steps = partial(option, help="T, the number of steps.", place=PYTHON)
compute = partial(option, help="Computing time of a worker in a step.", place=PYTHON)
on_progress = partial(option, help="Function called now and then with the number of completed steps.", place=PYTHON)
