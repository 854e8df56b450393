"""The question of ``syncline validate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option


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
