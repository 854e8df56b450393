"""Train the trials of the lottery, or draw its figure.

    python -m replication.lottery --for 20min --lines runs/lottery.jsonl     # again and again, until nothing is left
    python -m replication.lottery --lines runs/lottery.jsonl --keep          # write the table of all trials
    python -m replication.lottery --figure docs/figures/lottery.png

A line of ``--lines`` is a trial: its method, knobs, the loss of each seed, CPU seconds. A trial that is there is not
trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import syncline as sl
from replication.lines import resumed_lines
from replication.lottery.figure import lottery_figure
from replication.lottery.resampling import summary
from replication.lottery.setting import RESULTS, drawn_knobs, labels, lottery_setting
from replication.replications.choosing import with_knobs
from syncline.analysis.axes import save
from syncline.units import parse_seconds


def planned(setting: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any], dict[str, float]]]:
    """Yield label, number, fields and knobs of each trial: the first of all methods, the second of all, and so on."""
    knobs = {
        str(entry["method"]["label"]): drawn_knobs(
            entry["method"]["label"], entry["tune"], setting["trials"], setting["draw_seed"]
        )
        for entry in setting["methods"]
    }
    for trial in range(setting["trials"]):
        for entry in setting["methods"]:
            label = str(entry["method"]["label"])
            yield label, trial, with_knobs(entry["method"], knobs[label][trial]), knobs[label][trial]


def train_trial(setting: Mapping[str, Any], method: Mapping[str, Any]) -> dict[int, float]:
    """Train a method on all seeds, and return its last validation loss by seed; NaN if it diverged."""
    seeds = [*setting["search_seeds"], *setting["judge_seeds"]]
    result = sl.run(method=method, seeds=seeds, **setting["setting"])
    last = result.curves[result.curves["step"] == setting["setting"]["steps"]]
    losses = dict(zip(last["seed"].tolist(), last["loss"].tolist(), strict=True))
    return {seed: float(losses.get(seed, float("nan"))) for seed in seeds}


def table(lines: Path) -> pd.DataFrame:
    """Return a row per trial and seed."""
    rows = []
    for line in lines.read_text().splitlines():
        trial = json.loads(line)
        shared = {"method": trial["method"], "trial": trial["trial"], "knobs": json.dumps(trial["knobs"])}
        rows += [shared | {"seed": int(seed), "loss": loss} for seed, loss in trial["losses"].items()]
    return pd.DataFrame(rows)


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing within the time, keep the table, or draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m replication.lottery", description=__doc__)
    parser.add_argument("--for", dest="duration", default="0 s", help="time in which trainings start")
    parser.add_argument("--lines", type=Path, help="file with a line per trained trial")
    parser.add_argument("--share", default="0/1", help="i/k: of every k trials the i-th, for k processes side by side")
    parser.add_argument("--keep", action="store_true", help="write trials.parquet and summary.json")
    parser.add_argument("--figure", type=Path, help="picture to draw from the kept table")
    options = parser.parse_args(arguments)
    setting = lottery_setting()
    if options.lines is not None:
        train_and_keep(options, setting, parser)
    if options.figure:
        figure = lottery_figure(pd.read_parquet(RESULTS / "trials.parquet"), setting)
        save(figure, options.figure)
    return 0


def train_and_keep(options: argparse.Namespace, setting: Mapping[str, Any], parser: argparse.ArgumentParser) -> None:
    """Train the missing trials of a process's share within the time, and keep the table if it is asked for."""
    options.lines.parent.mkdir(parents=True, exist_ok=True)
    finished = {(trial["method"], trial["trial"]) for trial in resumed_lines(options.lines)}
    end_s = time.monotonic() + parse_seconds(options.duration, "--for")
    first, _, processes = options.share.partition("/")
    if not (first.isdecimal() and processes.isdecimal() and int(first) < int(processes)):
        parser.error(f"--share: got {options.share!r}; expected i/k, with i from 0 to k - 1")
    for number, (label, trial, method, knobs) in enumerate(planned(setting)):
        if (label, trial) in finished or number % int(processes) != int(first):
            continue
        if time.monotonic() >= end_s:
            break
        start_s = time.process_time()
        losses = train_trial(setting, method)
        line = {"method": label, "trial": trial, "knobs": knobs, "losses": losses}
        with options.lines.open("a") as file:
            file.write(json.dumps(line | {"cpu_s": round(time.process_time() - start_s, 3)}) + "\n")
    if options.keep:
        trials = table(options.lines).sort_values(["method", "trial", "seed"], ignore_index=True)
        seeds = len(setting["search_seeds"]) + len(setting["judge_seeds"])
        missing = len(labels(setting)) * setting["trials"] * seeds - len(trials)
        if missing:
            parser.error(f"--keep: {missing:,} losses are missing; train them first, with --for")
        trials.to_parquet(RESULTS / "trials.parquet", index=False)
        (RESULTS / "summary.json").write_text(json.dumps(summary(trials, setting), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
