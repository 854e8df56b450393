"""Train the arms of the study, keep the table of all trainings, or draw its figure.

    python -m replication.when --write-text runs/when.txt                       # the text, once
    python -m replication.when --scale gpu --text runs/when.txt --tokens 8192 --for 8min --lines runs/when-8192.jsonl
    python -m replication.when --scale cpu --text runs/when.txt --for 10min --lines runs/when-cpu.jsonl
    python -m replication.when --scale cpu --keep runs/when-cpu.jsonl           # the table of these trainings
    python -m replication.when --scale gpu --figure docs/figures/when.png

A line of ``--lines`` is a training. Trainings that are there are not trained again, so that the command continues after
a stop. Several arms train side by side, as long as their batches together have at most ``--side-by-side`` tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch

from replication.lines import resumed_lines
from replication.when.arms import Arm, ArmsMethod, Form
from replication.when.figure import when_figure
from replication.when.results import stored_file, stored_trainings, table
from replication.when.setting import RESULTS, Line, matched, placed_search, trigger_search, triggers, when_setting
from syncline.analysis.axes import save
from syncline.comm import SimulatedCommunicator
from syncline.optim.schedules import warmup_stable_decay
from syncline.problems.text_gpt import TextGPT, standard_library
from syncline.training import parameter_groups, rows_of, train
from syncline.units import parse_seconds

WORKERS = 4
HELD_OUT: Mapping[str, Literal["first-half", "second-half"]] = {"search": "first-half", "finals": "second-half"}
AFTER_AVERAGE = 2
"""Steps after an average whose changes of momenta are left out: they share the mean gradient."""

MARGIN = 1.15
"""Factor by which a run may take longer per training than the slowest of its batch, when time is planned."""


def train_arms(setting: Line, tokens: int, form: Form, stage: str, arms: Sequence[Arm], options: Any) -> list[Line]:
    """Train arms side by side and return their lines."""
    seeds, steps = tuple(arm.seed for arm in arms), setting["steps"]
    comm = SimulatedCommunicator(WORKERS, len(arms))
    rows = rows_of(comm, seeds)
    fields = setting["problem"]
    batch_size = tokens // (WORKERS * fields["context"])
    problem = TextGPT(**fields, batch_size=batch_size, held_out=HELD_OUT[stage], path=str(options.text))
    task = problem.build(rows, device=options.device, execution=options.how)
    method = ArmsMethod(
        parameter_groups(task), arms, steps, other_lr_share=setting["other_lr_share"], form=form, comm=comm
    )
    schedule = warmup_stable_decay(method, steps, setting["warmup_steps"], setting["cooldown_steps"])
    history = train(task, method, seeds, steps, eval_every=steps // 4, schedule=schedule)
    changes, fired = torch.stack(method.changes), torch.stack(method.fired).cpu()
    largest, mean = (values[1:].T.cpu() for values in method.values(changes))
    by_arm = changes.unflatten(1, (len(arms), WORKERS)).cpu().double()
    lines: list[Line] = []
    for number, arm in enumerate(arms):
        averaged = fired[:, number].nonzero().flatten().tolist()
        left_out = [] if arm.name == "every" else averaged  # equal workers share all mean gradients
        shared, noise = variances(by_arm[:, number], left_out, setting["settled_from"])
        losses = zip(history.eval_step.tolist(), history.evaluation["loss"][:, number].tolist(), strict=True)
        written = {name: value for name, value in asdict(arm).items() if name not in ("name", "averaged")}
        lines.append({
            "arm": arm.name, "form": form, "stage": stage, "tokens": tokens, **written,
            "averaged": averaged, "losses": [[step, loss] for step, loss in losses],
            "shared_variance": shared, "noise_variance": noise,
            "largest_values": _short(largest[number]), "mean_values": _short(mean[number]),
        })  # fmt: skip
    return lines


def variances(changes: torch.Tensor, averaged: Sequence[int], settled_from: int) -> tuple[float | None, float | None]:
    """Return the variance of momentum changes that the workers share in a step, and that of each worker's noise.

    Both are sums over the layers. The variance over steps of the mean over W workers has a W-th of the noise, which is
    subtracted, so that the shared variance may come out below 0.

    Args:
        changes: signed relative changes ``(T, W, L)``.
        averaged: steps that averaged; the two steps after each are left out.
        settled_from: first step that counts.
    """
    keeps = torch.ones(len(changes), dtype=torch.bool)
    keeps[:settled_from] = False
    for step in averaged:
        keeps[step + 1 : step + 1 + AFTER_AVERAGE] = False
    if int(keeps.sum()) < 2:
        return None, None
    settled = changes[keeps]
    noise = settled.var(1).mean(0)
    shared = settled.mean(1).var(0) - noise / settled.shape[1]
    return float(shared.sum()), float(noise.sum())


def _short(values: torch.Tensor) -> list[float]:
    """Return values with five digits."""
    return [float(f"{value:.5g}") for value in values.tolist()]


def runs_of(
    setting: Line, tokens: int, form: Form, seeds: Sequence[int], lines: Sequence[Line]
) -> Iterator[tuple[str, Callable[[], list[Arm]]]]:
    """Yield the stage and the arms of each run, in order; arms are known once the runs before are trained."""

    def searched() -> list[Line]:
        return [line for line in lines if is_of(line, tokens, form, "search")]

    def triggered() -> list[Line]:
        return [line for line in lines if is_of(line, tokens, form, "finals") and line["arm"].endswith("trigger")]

    yield "search", lambda: placed_search(setting)
    yield "search", lambda: trigger_search(setting, searched())
    for seed in seeds:
        yield "finals", lambda seed=seed: triggers(setting, searched(), seed)  # type: ignore[misc]
        yield "finals", lambda seed=seed: matched(setting, searched(), triggered(), seed)  # type: ignore[misc]


def is_of(line: Line, tokens: int, form: Form, stage: str) -> bool:
    """Return whether a training belongs to a batch, a form and a stage."""
    return bool(line["tokens"] == tokens and line["form"] == form and line["stage"] == stage)


def key_of(name: str, arm: Line) -> tuple[Any, ...]:
    """Return what tells a training from the others of its batch, form and stage."""
    return name, arm["seed"], arm["lr"], arm["count"], arm["follows"]


def train_all(setting: Line, options: Any) -> None:
    """Train what is missing, the first seeds of all forms before the others; stop before the time is over."""
    path = options.lines
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = resumed_lines(path)
    end_s = time.monotonic() + parse_seconds(options.duration, "--for")
    slowest_s: dict[int, float] = {}  # per training, by the tokens of its batch
    for seeds, form in product(setting["seeds"], setting["forms"]):
        for tokens in options.tokens or setting["tokens"]:
            for stage, arms_of in runs_of(setting, tokens, form, seeds, lines):
                done = {key_of(line["arm"], line) for line in lines if is_of(line, tokens, form, stage)}
                arms = [arm for arm in arms_of() if key_of(arm.name, asdict(arm)) not in done]
                at_once = max(1, options.side_by_side // tokens)
                for first in range(0, len(arms), at_once):
                    part = arms[first : first + at_once]
                    start_s = time.monotonic()
                    if start_s + MARGIN * slowest_s.get(tokens, 0.0) * len(part) >= end_s:
                        return
                    new = train_arms(setting, tokens, form, stage, part, options)
                    seconds = time.monotonic() - start_s
                    slowest_s[tokens] = max(slowest_s.get(tokens, 0.0), seconds / len(part))
                    about = {"seconds": round(seconds / len(part), 3), "device": options.device_name}
                    lines += [{**line, **about} for line in new]
                    with path.open("a") as file:
                        file.writelines(json.dumps(line) + "\n" for line in lines[-len(new) :])
                    print(f"{tokens} {form} {stage}: {len(part)} trainings in {seconds:.1f} s", flush=True)


def train_equal_workers(setting: Line, options: Any) -> None:
    """Train workers that average in all steps, whose momenta change differently by the noise of batches alone."""
    steps, (seed, *_) = options.equal_workers, setting["seeds"][0]
    shorter = {**setting, "steps": steps, "cooldown_steps": 0}
    for tokens in options.tokens or setting["tokens"]:
        arm = Arm("every", seed, max(setting["rates"]), tuple(range(steps)), count=steps)
        (line,) = train_arms(shorter, tokens, "gradients", "finals", [arm], options)
        with options.lines.open("a") as file:
            about = {"stage": "equal", "seconds": None, "device": options.device_name}
            file.write(json.dumps({**line, **about}) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Write the text, train what is missing within the time, keep the table, or draw the figure."""
    parser = argparse.ArgumentParser(
        prog="python -m replication.when", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=("cpu", "gpu", "smoke"), default="cpu", help="sizes; smoke: 40 steps")
    parser.add_argument("--write-text", type=Path, help="file to write the standard library's text to")
    parser.add_argument("--text", type=Path, help="text file; the last tenth is for validation")
    parser.add_argument("--tokens", type=int, nargs="+", help="batches to train, instead of all")
    parser.add_argument("--for", dest="duration", default="0 s", help="time in which trainings run")
    parser.add_argument("--lines", type=Path, help="file with a line per training")
    parser.add_argument("--side-by-side", type=int, default=2**17, help="tokens of a step of all arms of a run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--how", default="auto", help="how gradients are computed: auto, vmap, loop, graph, compiled")
    parser.add_argument("--equal-workers", type=int, metavar="STEPS", help="train only workers that always average")
    parser.add_argument("--keep", type=Path, nargs="+", help="files of lines to write as a table")
    parser.add_argument("--figure", type=Path, help="picture to draw from the kept table")
    options = parser.parse_args(arguments)
    setting = when_setting(options.scale)
    if options.write_text:
        corpus = standard_library()
        options.write_text.parent.mkdir(parents=True, exist_ok=True)
        options.write_text.write_bytes(torch.cat((corpus.train, corpus.validation)).numpy().tobytes())
        print(f"{corpus.name}: {len(corpus.train) + len(corpus.validation):,} bytes, SHA-256 {corpus.sha256}")
    elif options.text:
        options.device_name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
        (train_equal_workers if options.equal_workers else train_all)(setting, options)
    if options.keep:
        RESULTS.mkdir(parents=True, exist_ok=True)
        table(options.keep).to_parquet(stored_file(options.scale), index=False, compression="zstd")
    if options.figure:
        save(when_figure(stored_trainings(options.scale), setting), options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
