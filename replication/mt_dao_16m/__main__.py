"""Train MT-DAO's 16M model by MT-DAO and its baselines, one after the other, in a given time on one GPU.

    python -m replication.mt_dao_16m --text FOLDER --for 9min --out results/replication/mt-dao-16m

The command first measures a step, then divides the time equally among the methods. It writes `runs.jsonl`, a line per
finished training, and `setting.json`. It needs the package `tokenizers`.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import syncline as sl
from replication.mt_dao_16m.corpus import TokenWindows, token_windows
from replication.mt_dao_16m.network import PeriNormGPT
from syncline.units import parse_seconds

WORKERS = 4  # section 4.1
PERIOD = 32  # section 4.1
SEQUENCES = 64  # of all workers in a step, Table 2
CONTEXT = 2048  # Table 2
CLIP_NORM = 1.0  # Table 2
WARMUP_SHARE = 1 / 6  # 2,048 of the 12,288 steps of a tuning run with Adam, Appendix B.1; the cooldown is as long
EVALUATIONS = 16
MARGIN = 0.94  # of the remaining time that trainings are planned for
TIMED_STEPS = 32

ADAM = {"kind": "adam", "beta1": 0.9, "beta2": 0.999}


def methods(warmup_steps: int) -> dict[str, dict[str, Any]]:
    """Return the methods with the paper's values for Adam, the most telling first.

    Source: MT-DAO, Appendix H.2 (base rate 1e-3, tuned) and H.4 (omega 0.95, beta 0.999, rate 2e-3). The paper prints
    no outer rate and momentum for averages without fragments; these are those of DiLoCo (Douillard et al., 2023).
    """
    slow = {"period": PERIOD, "betas": [0.999], "omegas": [0.95], "beta2": 0.999}
    return {
        "mt-dao": {"kind": "mt-dao", "lr": 2e-3, **slow, "switch_step": warmup_steps, "warmup_beta": 0.9},
        "local-adam": {"kind": "local", "rule": ADAM, "lr": 1e-3, "period": PERIOD},
        "ddp-adam": {"kind": "ddp", "rule": ADAM, "lr": 1e-3},
        "diloco": {
            "kind": "diloco", "rule": ADAM, "lr": 1e-3, "period": PERIOD, "outer_lr": 0.7, "outer_momentum": 0.9,
        },
        "ddp-qhadam": {"kind": "ddp", "rule": {"kind": "qhadam", "beta1": 0.999, "nu1": 0.95}, "lr": 2e-3},
    }  # fmt: skip


def problem_of(windows: TokenWindows, vocabulary: int, sequences: int, width: int, compiled: bool) -> sl.TorchProblem:
    """Return the training of the network on the windows, a worker's rows one after the other."""
    return sl.TorchProblem(
        lambda: PeriNormGPT(vocabulary, width, compiled=compiled), (windows.train,), batch_size=sequences // WORKERS,
        validation=(windows.validation,), name="mt_dao_16m", how="loop",
    )  # fmt: skip


def train_network(
    problem: sl.TorchProblem, name: str, steps: int, seed: int, device: str, eval_every: int = 0
) -> dict[str, Any]:
    """Train the network by a method, and return its losses by step, its settings and its seconds.

    With ``eval_every`` 0 the network is evaluated only before and after the training.
    """
    warmup_steps = round(WARMUP_SHARE * steps)
    method = {**methods(warmup_steps)[name], "label": name, "clip_norm": CLIP_NORM}
    start_s = time.monotonic()
    result = sl.run(
        problem=problem, method=method, workers=WORKERS, steps=steps, seeds=[seed], eval_every=eval_every,
        schedule={"warmup_steps": warmup_steps, "cooldown_steps": warmup_steps}, network="wan",
        compute={"hardware": "h100"}, device=device,
    )  # fmt: skip
    curve = result.curves.dropna(subset=["loss"])  # evaluated steps
    return {
        "method": name, "settings": method, "seed": seed, "steps": steps, "warmup_steps": warmup_steps,
        "losses": [[int(step), float(loss)] for step, loss in zip(curve["step"], curve["loss"], strict=True)],
        "bytes_per_worker": result.rows[0]["bytes_per_worker"], "seconds": time.monotonic() - start_s,
    }  # fmt: skip


def step_seconds(problem: sl.TorchProblem, seed: int, device: str) -> tuple[float, float]:
    """Return the seconds of a step, and of all that a training does beside its steps; the first training compiles."""
    few, many = 8, 8 + TIMED_STEPS
    train_network(problem, "local-adam", few, seed, device)
    few_s, many_s = (train_network(problem, "local-adam", steps, seed, device)["seconds"] for steps in (few, many))
    step_s = (many_s - few_s) / (many - few)
    return step_s, max(0.0, few_s - few * step_s)


def affordable_steps(left_s: float, trainings: int, step_s: float, other_s: float) -> int:
    """Return the steps of each of so many trainings that fit into the remaining time, whole periods of averages."""
    steps = int((MARGIN * left_s / trainings - other_s) / step_s)
    return steps // PERIOD * PERIOD


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m replication.mt_dao_16m",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--text", type=Path, nargs="+", required=True, help="folders with Python files")
    options.add_argument("--windows", type=Path, help="file that keeps the tokens of the text for the next run")
    options.add_argument("--for", dest="duration", default="9min", help="time of the whole command")
    options.add_argument("--steps", type=int, help="steps of each training, instead of as many as fit")
    options.add_argument("--methods", default="mt-dao,local-adam,ddp-adam,diloco", help="with commas between")
    options.add_argument("--precision", choices=("tf32", "fp32"), default="tf32", help="of matrix products on a GPU")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--device", default="cuda")
    options.add_argument("--only-windows", action="store_true", help="make the file of --windows and train nothing")
    options.add_argument("--only-time", action="store_true", help="measure a step and train nothing")
    options.add_argument("--tiny", action="store_true", help="sizes that only show that the code runs")
    options.add_argument("--out", type=Path, required=True, help="folder of the results")
    return options


def windows_of(options: argparse.Namespace) -> TokenWindows:
    """Return the windows of the text, from the file that keeps them if it is there."""
    if options.windows and options.windows.exists():
        return TokenWindows(**torch.load(options.windows))
    context, vocabulary, largest_files = (16, 300, 200) if options.tiny else (CONTEXT, 50_000, None)
    windows = token_windows(options.text, context, vocabulary, 4 if options.tiny else 64, largest_files)
    if options.windows:
        torch.save(vars(windows), options.windows)
    return windows


def main(arguments: list[str] | None = None) -> int:
    """Train as many methods as fit into the time, and return 0; 1 if none did."""
    start_s = time.monotonic()
    options = parser().parse_args(arguments)
    budget_s = parse_seconds(options.duration, "--for")
    names = options.methods.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    windows = windows_of(options)
    prepared_s = time.monotonic() - start_s
    if options.only_windows:
        return 0
    vocabulary, sequences, width = (300, 8, 16) if options.tiny else (50_000, SEQUENCES, 256)
    problem = problem_of(windows, vocabulary, sequences, width, compiled=options.device == "cuda")
    step_s, other_s = step_seconds(problem, options.seed, options.device)
    left_s = budget_s - (time.monotonic() - start_s)
    steps = options.steps or affordable_steps(left_s, len(names), step_s, other_s)
    setting = {
        "command": " ".join(["python -m replication.mt_dao_16m", *(arguments or sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu", "torch": torch.__version__,
        "python": platform.python_version(), "syncline": sl.__version__, "precision": options.precision,
        "workers": WORKERS, "tokens_per_step": sequences * (windows.train.shape[1] - 1), "corpus": windows.facts,
        "prepared_s": prepared_s, "step_s": step_s, "other_s": other_s, "steps": steps,
    }  # fmt: skip
    if options.device == "cuda":
        setting["peak_bytes"] = torch.cuda.max_memory_allocated()
    (options.out / "setting.json").write_text(json.dumps(setting, indent=1) + "\n")
    print(json.dumps(setting), flush=True)
    finished = 0
    for name in [] if options.only_time or steps < PERIOD else names:
        if budget_s - (time.monotonic() - start_s) < steps * step_s + other_s:
            break
        line = json.dumps(
            train_network(problem, name, steps, options.seed, options.device, max(1, steps // EVALUATIONS))
        )
        with (options.out / "runs.jsonl").open("a") as out:
            print(line, file=out)
        print(line, flush=True)
        finished += 1
    return int(finished == 0 and not options.only_time)


if __name__ == "__main__":
    sys.exit(main())
