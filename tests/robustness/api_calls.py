"""Calls of the public API: good ones, with one or two arguments changed to a value that they are not meant to have.

A case is a function of its number alone.
"""

from __future__ import annotations

import inspect
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import syncline as sl
from syncline import comm, methods
from syncline.costmodel import HARDWARE, Link
from syncline.measure.recording.ranks import ForeignScript
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.measure.replaying.trace import trace
from syncline.methods.constructor import kinds
from tests.measure.replaying.records import both
from tests.robustness.hostile import NAMES, hostile, like

BESIDE: dict[str, tuple[str, ...]] = {
    "search": ("tune", "trials"),
    "tune": ("trials",),
    "trials": ("tune",),
    "deadline": ("tokens",),
    "budget": ("tokens", "prices"),
    "best": ("deadline", "tokens"),
}
"""Arguments that are refused without these."""


class Call(NamedTuple):
    """A callable of the API, with arguments that it takes.

    Attributes:
        make: returns the callable.
        needed: returns arguments without which a call is long, or impossible.
        more: returns other arguments, each of which fits beside those.
        weight: how often it is called, beside the others.
    """

    make: Callable[[], Callable[..., Any]]
    needed: Callable[[], dict[str, Any]]
    more: Callable[[], dict[str, Any]] = dict
    weight: float = 1.0


class Case(NamedTuple):
    """A call: which, with which of its arguments, and the places whose values are changed to hostile ones."""

    number: int
    name: str
    more: tuple[str, ...]
    changes: Mapping[tuple[Any, ...], str]

    def __str__(self) -> str:
        changed = ", ".join(f"{'.'.join(map(str, place))}=<{value}>" for place, value in self.changes.items())
        return f"case {self.number}: {self.name}({changed}) beside {', '.join(self.more) or 'nothing'}"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments, made anew."""
        call = CALLS[self.name]
        others = call.more()
        arguments = call.needed() | {name: others[name] for name in self.more}
        if "cluster" in self.more and not any(place[0] == "networks" for place in self.changes):
            arguments.pop("networks")
        for (*parents, last), value in self.changes.items():
            at: Any = arguments
            for key in parents:
                at = at[key]
            at[last] = hostile(value)
        return arguments


BOWL = {"kind": "quadratic", "spectrum": [1, 10], "noise_std": 0.1}


def _small() -> dict[str, Any]:
    return {"problem": dict(BOWL), "workers": 2, "steps": 3, "compute": {"seconds": "1 ms"}}


def _one_of_each() -> dict[str, Any]:
    return _small() | {"method": {"kind": "local", "lr": 0.01, "period": 2}, "network": "10gbe"}


def _training_fields() -> dict[str, Any]:
    return {
        "spec": {"kind": "run", "name": "x"}, "seeds": [0, 1], "eval_every": 1, "overlap": "ddp", "protocol": "eager",
        "bucket_size": "1 MB", "faults": {"latency_jitter": 0.1}, "schedule": {}, "dtype": "float64", "exact": True,
        "on_progress": lambda done: None, "out": "out", "scale": None, "method.lr": 0.02,
    }  # fmt: skip


def _projection() -> dict[str, Any]:
    return {
        "spec": "project-gpt-160m", "hardware": "h100", "model": "gpt-160m", "overlap": "ddp", "algorithm": "ring",
        "sequence": 128, "precision": "bf16", "layout": "tensor=2", "tokens": "1B", "target_loss": 3.0,
        "prices": {"accelerator_hour": 2.0}, "extrapolate": True, "failures": "llama-3",
        "cluster": "two-sites-a100", "tokens_per_worker": 1024,
    }  # fmt: skip


def _solved() -> dict[str, Any]:
    return {name: value for name, value in _projection().items() if name != "failures"}


def _targets() -> dict[str, Any]:
    return {
        "deadline": "30d", "budget": "50k", "step_time": "2 s", "utilisation": 0.4, "compute_utilisation": 0.4,
        "exposed": "5%", "loss_penalty": "1%", "over": "ddp-adam", "level": 0, "batch_tokens": "1M", "best": True,
        "fits": True,
    }  # fmt: skip


@cache
def _tensors() -> torch.Tensor:
    return torch.arange(8.0).reshape(4, 2)


def _parameters() -> list[torch.nn.Parameter]:
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    parameter.grad = torch.full((4, 4), 0.5)
    return [parameter]


def _stepped(make: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is made and takes a step."""

    def step(*args: Any, **options: Any) -> None:
        make(*args, **options).step()

    step.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
    return step


def _knobs(name: str) -> dict[str, Any]:
    """Knobs of a method that have plain defaults."""
    knobs = inspect.signature(getattr(methods, name)).parameters.values()
    return {
        knob.name: knob.default
        for knob in knobs
        if isinstance(knob.default, int | float | str | tuple) and knob.name not in ("params", "lr", "kind")
    }


def _collective(name: str) -> Callable[[], Callable[..., Any]]:
    return lambda: getattr(comm.SimulatedCommunicator(4), name)


def _result(name: str) -> Callable[[], Callable[..., Any]]:
    return lambda: getattr(_swept() if name == "best" else sl.load(_folder("pipeline")), name)


@cache
def _kept() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="syncline-calls-"))
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _folder(kind: str) -> str:
    """A folder of results: of a pipeline, or of a trace."""
    folder = _kept() / kind
    if kind == "pipeline":
        sl.pipeline(schedules=["gpipe"], stages=2, microbatches=2).save(folder)
    elif kind == "sweep":
        sl.sweep(**_one_of_each(), grid={"method.lr": [0.01, 0.02]}, jobs=1).save(folder)
    else:
        script = _kept() / "script.py"
        script.write_text("")
        question = ReplayedOn([Link(1e-3, 1e9, "ring")], HARDWARE["a100"], "ring")
        trace([ForeignScript(str(script))], 2, question, folder, run=lambda *_: both(4))
    return str(folder)


def _swept() -> Any:
    return sl.load(_folder("sweep"))


def _function(name: str) -> Callable[[], Callable[..., Any]]:
    return lambda: getattr(sl, name)


CALLS: dict[str, Call] = {
    "compare": Call(
        _function("compare"),
        lambda: _small() | {"methods": ["ddp-adam", {"kind": "local", "lr": 0.01}], "networks": ["10gbe"], "jobs": 1},
        lambda: {name: value for name, value in _training_fields().items() if name not in ("method.lr", "scale")}
        | {"spec": {"kind": "compare", "name": "x"}, "methods.1.lr": 0.1},
        weight=4,
    ),
    "run": Call(_function("run"), _one_of_each, _training_fields, weight=4),
    "sweep": Call(
        _function("sweep"),
        lambda: _one_of_each() | {"jobs": 1, "grid": {"method.lr": [0.01, 0.02]}},
        lambda: {
            "seeds": 2, "dask": None, "search": "optuna", "tune": {"workers": (2, 4)}, "trials": 2, "out": "swept",
            "equal_effort": True, "overlap": "ddp",
        },
        weight=4,
    ),
    "launch": Call(
        _function("launch"),
        _one_of_each,
        lambda: {
            "device": "cpu", "backend": "gloo", "timeout": "10 s", "workers_per_process": 1, "rejoins": 1, "port": 0,
            "reproducible": True, "out": "out", "exact": True, "seeds": 1, "spec": {"kind": "run", "name": "x"},
            "on_progress": lambda done: None,
        },
        weight=2,
    ),
    "calibrate": Call(
        _function("calibrate"),
        lambda: {"workers": [2]},
        lambda: {
            "spec": None, "network": "10gbe", "sizes": ["4 B", 1024], "budget": "10 ms", "window": "10 ms",
            "out": "out", "device": "cpu", "backend": "gloo", "timeout": "10 s",
        },
        weight=2,
    ),
    "project": Call(
        _function("project"),
        lambda: {"workers": [8], "methods": ["ddp-adam", {"kind": "diloco", "lr": 0.003}], "networks": ["10gbe"]},
        lambda: _projection() | {"thresholds": False},
        weight=4,
    ),
    "solve": Call(
        _function("solve"),
        lambda: {"variable": "bandwidth", "workers": 4, "methods": "diloco", "networks": "10gbe", "speedup": 2},
        lambda: _solved() | _targets(),
        weight=4,
    ),
    "solve.workers": Call(
        _function("solve"),
        lambda: {
            "variable": "workers", "workers": 4, "methods": "diloco", "networks": "10gbe",
            "step_time": "2 s", "most": 8,
        },
        _solved,
    ),
    "solve.network": Call(
        _function("solve"),
        lambda: {
            "variable": "network", "workers": 4, "methods": "diloco", "networks": "10gbe", "step_time": "2 s",
            "among": ["10gbe", "wan"],
        },
        _solved,
    ),
    "advise": Call(
        _function("advise"),
        lambda: {
            "model": "gpt-160m", "network": "two-sites", "hardware": "h100", "workers": 4, "methods": ["ddp-adam"],
        },
        lambda: {
            "tokens": "1B", "target_loss": 3.0, "batch_tokens": "1M", "sequence": 128, "budget": "50k",
            "deadline": "30d", "prices": {"accelerator_hour": 2.0}, "extrapolate": True,
            "failures": "llama-3",
        },
        weight=4,
    ),
    "collectives": Call(
        _function("collectives"),
        lambda: {"workers": 4, "nbytes": "1 MB", "networks": ["10gbe"]},
        lambda: {
            "cluster": "two-sites-a100", "collectives": ["all_reduce"], "algorithms": ["ring", "tree"],
            "protocol": "rendezvous", "starts": [0, 0, 0, "1 ms"],
        },
        weight=3,
    ),
    "pipeline": Call(
        _function("pipeline"),
        lambda: {"schedules": ["gpipe"], "stages": 2, "microbatches": 2},
        lambda: {
            "spec": "pipeline-schedules", "forward": [1.0, "10 ms"], "backward": "20 ms", "networks": ["10gbe"],
            "out": "out", "exact": True, "backward_weight": "1 ms", "jitter": 0.1, "activation_bytes": "1 MB",
            "seed": 1,
        },
        weight=3,
    ),
    "goodput": Call(
        _function("goodput"),
        lambda: {"failures": "llama-3", "workers": [64]},
        lambda: {
            "step_time": "10 s", "recovery": ["restart"], "interval": ["best", "1 h"], "duration": "1 d", "steps": 100,
            "seeds": 1, "period": 2, "restart": "5 min", "checkpoint": {"write_time": 60}, "spares": 8,
        },
        weight=3,
    ),
    "loss": Call(
        _function("loss"),
        lambda: {"method": ["ddp-adam", "diloco"], "parameters": ["1.3B"], "extrapolate": True},
        lambda: {
            "tokens": "26B", "replicas": [2, 4], "period": [30], "batch_tokens": "1M", "fit": None, "target_loss": 2.5,
            "every_fit": True,
        },
        weight=3,
    ),
    "trace": Call(
        _function("trace"),
        lambda: {"what": lambda: None, "workers": 2},
        lambda: {
            "networks": ["10gbe"], "hardware": "a100", "algorithm": "ring", "host": "ahead", "target_loss": 1.0,
            "out": "out", "exact": True,
        },
        weight=2,
    ),
    "whatif": Call(
        _function("whatif"),
        lambda: {"record": [_folder("trace")], "networks": ["10gbe"]},
        lambda: {
            "hardware": "a100", "algorithm": "ring", "host": "ahead", "scale_bandwidth": 2.0, "scale_latency": 2.0,
            "scale_compute": 2.0, "overlap": True, "target_loss": 1.0, "out": "out", "exact": True,
        },
        weight=2,
    ),
    "replicate": Call(
        _function("replicate"),
        lambda: {"name": "mt-dao", "most": 1, "out": "replicated"},
        lambda: {
            "scale": "cpu", "seeds": [3, 4], "time": "1 s", "jobs": 1, "on_stage": lambda stage: None,
            "on_expected": lambda left: None,
        },
    ),
    "reproduce": Call(_function("reproduce"), lambda: {"paper": "curvadion"}, weight=0.3),
    "load": Call(_function("load"), lambda: {"folder": _folder("pipeline")}),
    "report": Call(
        _function("report"), lambda: {"what": [_folder("pipeline")]}, lambda: {"out": "report.html", "title": "t"}
    ),
    "Link": Call(_function("Link"), lambda: {"latency": "1 ms", "bandwidth": "1 Gbit/s"}, lambda: {"name": "dsl"}),
    "TorchProblem": Call(
        _function("TorchProblem"),
        lambda: {
            "make_model": lambda: torch.nn.Linear(2, 2), "train_set": (torch.ones(8, 2), torch.ones(8, 2)),
            "loss": torch.nn.functional.mse_loss,
        },
        lambda: {
            "evaluate": torch.nn.functional.mse_loss, "batch_size": 4, "accumulate": 1,
            "validation": (torch.ones(4, 2), torch.ones(4, 2)),
            "shuffle": True, "drop_last": True, "name": "mine", "how": "loop", "buffers": "own",
            "matrices": ["weight"],
        },
        weight=2,
    ),
    "Result.save": Call(_result("save"), lambda: {"folder": "saved"}),
    "Result.report": Call(_result("report"), dict, lambda: {"out": "report.html", "title": "t"}),
    "SweepResult.best": Call(_result("best"), lambda: {"by": "loss"}),
    "SimulatedCommunicator": Call(
        lambda: comm.SimulatedCommunicator, lambda: {"workers": 2}, lambda: {"replicas": 2, "membership": None}
    ),
    "ShapesCommunicator": Call(lambda: comm.ShapesCommunicator, lambda: {"workers": 2}, weight=0.3),
    "Membership": Call(
        lambda: comm.Membership, lambda: {"workers": 2}, lambda: {"absences": (comm.Absence(0, 1, 2),)}, weight=0.3
    ),
}  # fmt: skip

for _name, _more in {
    "all_reduce": {"op": "mean"},
    "all_gather": {},
    "gather": {"root": 0},
    "broadcast": {"root": 0},
    "start_all_gather": {},
    "all_gather_within": {"size": 2},
    "all_gather_across": {"size": 2},
}.items():
    CALLS[f"Communicator.{_name}"] = Call(
        _collective(_name),
        lambda more=_more: {"x": _tensors()} | {name: value for name, value in more.items() if name == "size"},
        lambda more=_more, name=_name: (
            (more if "size" not in more else {})
            | ({"wire": comm.BF16} if name in ("all_reduce", "all_gather", "gather", "broadcast") else {})
            | {"label": "x", "details": comm.PLAIN}
        ),
        weight=0.3,
    )
for _name, _more in {"all_to_all": {}, "reduce_scatter": {"op": "sum"}}.items():
    CALLS[f"Communicator.{_name}"] = Call(
        _collective(_name), lambda: {"x": torch.ones(4, 4, 2)}, lambda more=_more: more | {"label": "x"}, weight=0.3
    )
for _name, _more in {"all_reduce_coalesced": {"op": "sum"}, "start_all_reduce": {}, "mean_within": {"size": 2}}.items():
    CALLS[f"Communicator.{_name}"] = Call(
        _collective(_name),
        lambda more=_more: {"xs": [_tensors(), _tensors()]} | {key: 2 for key in more if key == "size"},
        lambda more=_more: {"label": "x", "wire": comm.BF16} | {key: one for key, one in more.items() if key == "op"},
        weight=0.3,
    )
for _name in kinds():
    CALLS[f"sl.{_name}"] = Call(
        lambda name=_name: getattr(sl, name) if name in sl.__all__ else getattr(methods.functions, name),
        lambda: {"lr": 0.01},
        lambda: {"weight_decay": 0.1, "clip_norm": 1.0, "label": "mine"},
        weight=0.3,
    )
for _name in sorted(methods._specs):
    CALLS[f"methods.{_name}"] = Call(
        lambda name=_name: _stepped(getattr(methods, name)),
        lambda: {"params": _parameters(), "lr": 0.01},
        lambda name=_name: _knobs(name) | {"comm": None, "worker_axis": False},
        weight=0.3,
    )


def case(number: int) -> Case:
    """Return the case of this number."""
    draw = random.Random(f"call {number}")
    name = draw.choices(list(CALLS), [call.weight for call in CALLS.values()])[0]
    needed, others = CALLS[name].needed(), CALLS[name].more()
    drawn = draw.sample(list(others), min(len(others), draw.choice([0, 0, 1, 2])))
    more = tuple(dict.fromkeys(other for one in drawn for other in (one, *BESIDE.get(one, ())) if other in others))
    changes: dict[tuple[Any, ...], str] = {}
    for _ in range(draw.choice([1, 1, 1, 2])):
        everything = needed | others
        place: tuple[Any, ...] = (draw.choice([*needed, *(more or others)]),)
        inner = everything[place[0]]
        while isinstance(inner, list | dict) and inner and draw.random() < 0.4:
            key = draw.choice(list(inner if isinstance(inner, dict) else range(len(inner))))
            place, inner = (*place, key), inner[key]
        if place[0] in others and place[0] not in more:
            more = (*more, place[0], *(one for one in BESIDE.get(place[0], ()) if one in others))
        if not any(place[: len(other)] == other or other[: len(place)] == place for other in changes):
            changes[place] = draw.choice(like(inner) if draw.random() < 0.5 else NAMES)
    if draw.random() < 0.01:
        changes["no_such_argument",] = "0"
    return Case(number, name, more, changes)
