"""Command lines of the commands that train many configurations, start processes, or read what runs have left.

As in `tests.robustness.mutations`, a case is a function of its number; but folders of results are made on the machine
that runs the tests, once, and say so (times, versions).
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import syncline as sl
from syncline.measure.validation.processes import summarise
from syncline.runs.folders.result_files import json_value
from syncline.runs.sweep.sweep import sweep
from syncline.specs import bundled
from tests.robustness.mutations import Case, changed, garbled, small, some_options, spec_fields

FIRST = 10_000
"""The number of the first of these cases; those below are of `tests.robustness.mutations`."""

BOWL = {"kind": "quadratic", "spectrum": [1, 10], "noise_std": 0.1}
SMALL: dict[str, Any] = {"problem": BOWL, "workers": 2, "steps": 3, "seeds": [0, 1], "compute": {"seconds": "1 ms"}}


def more(number: int) -> Case:
    """The case of this number."""
    draw = random.Random(f"more {number}")
    make: Callable[[int, random.Random], Case] = draw.choices(
        [sweep_case, _best, launch_case, calibrate_case, validate_case, _runs, _show, rm_case, doctor_case],
        [22, 10, 12, 10, 12, 6, 18, 8, 2],
    )[0]
    return make(number, draw)


@cache
def _kinds() -> dict[str, str]:
    """The kinds of the bundled specs."""
    return {name: yaml.safe_load(path.read_text(encoding="utf-8"))["kind"] for name, path in bundled().items()}


def _spec_of(draw: random.Random, *kinds: str) -> tuple[str, str | None]:
    """The name of a spec of one of these kinds, and its text, if it is a file: with one or two places changed."""
    name = draw.choice([name for name, kind in _kinds().items() if kind in kinds])
    if draw.random() < 0.3:
        return name, None
    fields = small(spec_fields(name, draw), draw)
    changed(fields, draw, draw.choice([1, 1, 2]))
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    return "spec.yaml", garbled(text, draw) if draw.random() < 0.03 else text


def _sets(draw: random.Random, *good: str) -> list[str]:
    """Fields that are set: rightly, wrongly, or none."""
    bad = ["steps=0", "steps=[", "a.b=1", "=", "workers=-1", "seeds={}", "method.lr.x=2", "name=../x", "steps=1e99"]
    how = draw.random()
    return [] if how < 0.5 else ["--set", draw.choice(bad if how > 0.9 else good or bad)]


def sweep_case(number: int, draw: random.Random) -> Case:
    name, text = _spec_of(draw, "run", "compare")
    grids = {
        "--grid": (
            ["method.lr=1e-3,3e-3", "network=10gbe,wan", "workers=2,4", "steps=[2, 3]", "overlap=none,ddp",
             "network=[10gbe, '1ms,1Gbit/s']", "compute.seconds=1 ms,2 ms", "faults.latency_jitter=0,0.2"],
            ["method.lr", "=1,2", "method.lr=", "method.lr=[", "a.b=1,2", "method.lr=1e-3,1e-3", "workers=0,1",
             "seeds=[[0], [1]]", "problem=rosenbrock,quadratic", "nobody:method.lr=1,2", "kind=run,compare", ".=1",
             "method.lr=1e-3,.nan", "name=a,b", "workers=1e99,2", "method.lr=[[1], {a: b}]", "network=&a [*a]"],
        ),
        "--seeds": (["1", "2", "[0]", "[3, 4]"], ["0", "-1", "1e9", "[", "[0, 0]", "x", "99999999", "{}", "[-1]"]),
        "--tune": (["method.lr=1e-4..1e-1", "workers=2..4"],
                   ["method.lr", "method.lr=1..", "method.lr=3..1", "a.b=0..1", "method.lr=nan..1", "method.lr=-1..1",
                    "network=10gbe..wan", "method.lr=1e-3..1e-3", "..=1..2", "method.lr=1..inf"]),
        "--trials": (["1", "2"], ["0", "-1", "x", "1000000000"]),
        "--search": (["optuna"], ["grid", ""]),
        "--jobs": (["1"], ["0", "-1", "x"]),
        "--out": (["swept"], ["spec.yaml", "", ".", "swept/spec.yaml/x"]),
    }  # fmt: skip
    given = some_options(draw, grids)
    tuned = any(one.startswith("--tune") for one in given)
    if draw.random() < 0.8:  # what else is refused
        given = [one for one in given if not one.startswith(("--trials", "--search"))] + ["--trials=2"] * tuned
    given += ["--equal-effort"] if draw.random() < 0.2 else []
    if text is None:  # a bundled one, made small
        given += [part for key, value in SMALL.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        given += ["--set", "schedule={}", "--set", "faults={}"]
    given = [one for one in given if not one.startswith("--jobs=1")]
    jobs = [] if any(one.startswith("--jobs") for one in given) else ["--jobs", "1"]
    return Case(number, ("sweep", name, *given, *jobs), text)


def launch_case(number: int, draw: random.Random) -> Case:
    name, text = _spec_of(draw, "run", "pipeline")
    given = some_options(draw, {
        "--workers": (["1", "2", "4"], ["0", "-1", "x", "1000000000", "1e3"]),
        "--network": (["10gbe", "wan", "1ms,1Gbit/s"], ["x", "", "10gbe,wan", "0,1bit/s"]),
        "--device": (["auto", "cpu"], ["cuda", "tpu", ""]),
        "--backend": (["auto", "gloo"], ["nccl", "mpi"]),
        "--timeout": (["120 s", "1 min", "2"], ["0", "-1 s", "x", "nan", "inf", "1e400 s"]),
        "--workers-per-process": (["1", "2"], ["0", "-1", "3", "x"]),
        "--port": (["0"], ["-1", "99999", "x"]),
        "--out": (["new"], ["spec.yaml", "spec.yaml/x"]),
    })  # fmt: skip
    given += ["--reproducible"] if draw.random() < 0.2 else []
    return Case(number, ("launch", name, *given, *_sets(draw, "steps=3", "seeds=[0]", "timeline_steps=1")), text)


def calibrate_case(number: int, draw: random.Random) -> Case:
    name, text = _spec_of(draw, "run", "compare") if draw.random() < 0.5 else ("", None)
    given = some_options(draw, {
        "--workers": (["2", "2,4", "4,2", "3"], ["1", "0", "2,2", "", "x", "2,,4", "1000000000", "-2"]),
        "--network": (["10gbe", "1ms,1Gbit/s"], ["x", "dgx-h100", "1ms", "spec.yaml"]),
        "--sizes": (["4 B,1 MiB", "1000"], ["", "0", "-1", "x", "1 MB,", "nan", "1e400", "4 B,4 B", "1e30"]),
        "--budget": (["10 ms", "0.1"], ["0", "-1", "x", "nan", "inf"]),
        "--window": (["10 ms", "1"], ["0", "-1", "x", "nan", "inf"]),
        "--device": (["auto", "cpu"], ["cuda", "tpu"]),
        "--backend": (["auto", "gloo"], ["nccl", "mpi"]),
        "--timeout": (["60 s"], ["0", "x", "nan"]),
        "--out": (["lab.yaml"], ["lab", "spec.yaml", "spec.yaml/x.yaml", ".yaml", ""]),
    })  # fmt: skip
    sets = _sets(draw, "steps=3", "problem=rosenbrock") if name else _sets(draw) if draw.random() < 0.1 else []
    return Case(number, ("calibrate", *([name] if name else []), *given, *sets), text)


CLUSTER = {
    "name": "lab", "measured": {"seconds": 1.0, "machines": 1, "backend": "gloo", "device": "cpu"},
    "network": {"latency": "50 us", "bandwidth": "10 Gbit/s",
                "gloo": {"call_s": 1e-4, "pair_s": [[2, 2e-4]], "seconds_per_byte": {"all_reduce": 1e-10}}},
}  # fmt: skip


def validate_case(number: int, draw: random.Random) -> Case:
    names, text = [], None
    for _ in range(draw.choice([1, 1, 1, 2])):
        name, of_file = _spec_of(draw, "run", "compare", "validate")
        names, text = [*names, name], of_file or text
    given = some_options(draw, {
        "--workers": (["2", "2,4"], ["1", "0", "x", "", "2,2", "1000000000"]),
        "--cluster": (["lab.yaml"], ["nowhere.yaml", "spec.yaml", "10gbe", "."]),
        "--repeats": (["1", "3"], ["0", "-1", "x"]),
        "--data": (["measured"], ["nowhere", "spec.yaml"]),
        "--out": (["new"], ["spec.yaml", "spec.yaml/x"]),
    })  # fmt: skip
    fields = json.loads(json.dumps(CLUSTER))
    if draw.random() < 0.3:
        changed(fields, draw, 1)
    files = {"lab.yaml": yaml.safe_dump(fields, sort_keys=False), "measured/a100_single_half.csv": "a,b\n1,2\n"}
    return Case(number, ("validate", *names, *given, *_sets(draw, "steps=3", "seeds=[0]")), text, files)


@cache
def kept() -> dict[str, dict[str, str]]:
    """The folders that commands leave, each by what it is of: the text of its files."""
    here = Path(tempfile.mkdtemp(prefix="syncline-kept-"))
    methods = ["ddp-adam", {"kind": "local", "lr": 0.01, "period": 2}]
    run = {"kind": "run", "name": "bowl", "method": methods[1], "network": "wan", "timeline_steps": 1, **SMALL}
    try:
        sl.run(run).save(here / "run")
        sl.compare(methods=methods, networks=["10gbe", "wan"], jobs=1, **SMALL).save(here / "compare")
        sl.pipeline(schedules=["gpipe", "1f1b"], stages=2, microbatches=2).save(here / "pipeline")
        sl.collectives(4, "1 MB", ["10gbe"], collectives=["all_reduce"]).save(here / "collectives")
        sl.project("project-gpt-160m", workers=[2]).save(here / "project")
        sl.run("lion-cub-ties", votes=100).save(here / "study")
        sweep(run, {"method.lr": [0.1, 0.2], "network": ["10gbe", "wan"]}, seeds=2, out=here / "sweep", jobs=1)
        found = {
            folder.name: {
                str(path.relative_to(folder)): path.read_text(encoding="utf-8")
                for path in sorted(folder.rglob("*"))
                if path.suffix in (".json", ".yaml") and path.name != "trace.json"
            }
            for folder in sorted(here.iterdir())
        }
    finally:
        shutil.rmtree(here)
    return found | {"launch": _launched(found["run"]), "validate": _validated(found["compare"])}


def _launched(run: dict[str, str]) -> dict[str, str]:
    """What a launch of the same would say; no processes are started here."""
    told = json.loads(run["run.json"])
    split = {"network": "measured", "step_time_median_s": 1e-3, "optimizer_s": 1e-4}
    told |= {"launch": {"processes": 2}, "failed": None, "simulated": told["rows"][0]}
    told["rows"] = [row | split for row in told["rows"]]
    return run | {"run.json": json.dumps(told)}


def _validated(compare: dict[str, str]) -> dict[str, str]:
    """Likewise what a validation of trainings would."""
    told, rows = json.loads(compare["run.json"]), []
    for row in told["rows"]:
        rows.append({
            "spec": "bowl", "problem": "quadratic", "method": row["method"], "network": row["network"], "workers": 2,
            "latency_s": 1e-3, "bandwidth_bytes_per_s": 1e9, "steps": 3, "predicted_loss": 1.0, "measured_loss": 1.0,
            "predicted_bytes": 8.0, "measured_bytes": 8.0, "predicted_s": 1.0, "measured_s": 1.1, "spread": 0.01,
            "predicted_communication_s": 0.5, "measured_communication_s": 0.4, "predicted_device_bytes": 9.0,
            "bound": "compute", "device_bytes": None, "error": -0.09, "noisy": False, "device_error": None,
            "communication_error": 0.2, "loss_difference": 0.0,
        })  # fmt: skip
    told |= {"specs": [], "repeats": 2, "rows": rows, "summary": summarise(rows)}
    return {"run.json": json.dumps(told)}


LEFT = (".{}.partial-999999999", "{}-killed", "{}-killed-2")
"""What a folder is called that was not finished."""


def _left(draw: random.Random, kinds: tuple[str, ...] = (), harm: float = 0.5) -> tuple[list[str], dict[str, str]]:
    """The names of one to three folders in ``runs/``, and their files, some of which are not as they were."""
    names, files = [], {}
    for number in range(draw.choice([1, 1, 2, 3])):
        of = draw.choice(kinds or tuple(kept()))
        inside = dict(kept()[of])
        name = draw.choice([of, f"{of}-2", "a b", "日本"]) if number == 0 else f"{of}-{number + 3}"
        if draw.random() < harm:
            _harm(inside, draw)
        if draw.random() < 0.1:
            name = draw.choice(LEFT).format(name)
            inside |= {"figures/x.txt": "x"}
        names.append(name)
        files |= {f"runs/{name}/{path}": text for path, text in inside.items()}
    return names, files


def _harm(inside: dict[str, str], draw: random.Random) -> None:
    """One file of a folder is gone, cut off, or says something else."""
    path = draw.choice([path for path in inside if "/" not in path] if draw.random() < 0.7 else list(inside))
    how, text = draw.random(), inside[path]
    if how < 0.1:
        del inside[path]
    elif how < 0.2:
        inside[path] = text[: draw.randrange(len(text))]
    elif how < 0.25:
        inside[path] = draw.choice(["", "null", "[]", "{}", "[" * 5000, '"x"', "\x00", '{"rows": [1]}', '{"rows": {}}'])
    else:
        fields = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
        rows = fields.get("rows") if isinstance(fields, dict) else None
        inner = {"rows": rows} if rows and draw.random() < 0.5 else fields  # what is printed
        changed(inner, draw, draw.choice([1, 1, 2]))
        fields |= inner
        inside[path] = (
            json.dumps(json_value(fields)) if path.endswith(".json") else yaml.safe_dump(fields, sort_keys=False)
        )


def _best(number: int, draw: random.Random) -> Case:
    names, files = _left(draw, ("sweep",) if draw.random() < 0.9 else ())
    given = some_options(draw, {
        "--by": (["loss", "wall_clock_s", "step_time_s"], ["seed", "lr", "", "method", "configuration"]),
        "--top": (["1", "20"], ["0", "-1", "x", "1000000000000000000000"]),
    })  # fmt: skip
    given += ["--equal-effort"] if draw.random() < 0.3 else []
    folder = f"runs/{names[0]}" if draw.random() < 0.95 else draw.choice(["", "nowhere", "runs", "/dev/null"])
    return Case(number, ("best", folder, *given), None, files)


def _runs(number: int, draw: random.Random) -> Case:
    _, files = _left(draw)
    folder = draw.choice([[], ["runs"], ["runs/"], ["./runs"], [draw.choice(["nowhere", "", "/dev/null", "x" * 300])]])
    return Case(number, ("runs", *folder, *(["--json"] if draw.random() < 0.5 else [])), None, files)


def _show(number: int, draw: random.Random) -> Case:
    names, files = _left(draw)
    name = draw.choice([names[0], f"runs/{names[0]}", f"runs/{names[0]}/", names[-1]])
    if draw.random() < 0.08:
        name = draw.choice(["", "nowhere", "..", "/", "runs/../runs", f"{names[0]}s", "spec.yaml", "x" * 300])
    folder = ["--folder", draw.choice(["runs", "runs", "nowhere"])] if draw.random() < 0.1 else []
    return Case(number, ("show", name, *folder, *(["--json"] if draw.random() < 0.5 else [])), None, files)


def rm_case(number: int, draw: random.Random) -> Case:
    names, files = _left(draw)
    given = draw.sample([*names, "nowhere"] if draw.random() < 0.1 else names, draw.choice([1, 1, len(names)]))
    if draw.random() < 0.1:
        given = [draw.choice(["..", "/", ".", "", "runs", "runs/..", "x" * 300])]
    partial = ["--partial"] if draw.random() < 0.4 else []
    yes = ["--yes"] if draw.random() < 0.8 else []
    return Case(number, ("rm", *([] if partial and draw.random() < 0.5 else given), *partial, *yes), None, files)


def doctor_case(number: int, draw: random.Random) -> Case:
    return Case(number, ("doctor", *draw.choice([[], ["--json"], ["--jsn"], ["x"]])))
