"""Command lines that somebody could type: good ones, with one or two things changed, sensibly or not.

A case is a function of its number alone. Nothing in it names a module, so that nothing is imported by chance.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from syncline.costmodel import COLLECTIVES, HARDWARE, NETWORKS
from syncline.methods import METHODS
from syncline.sim.pipelines.schedules import SCHEDULES
from syncline.specs import bundled, load_spec
from syncline.specs.load import command_of_kind

WILD: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 0.5, -0.5, 1e-300, 1e300, 2**31, 2**63, 10**30, float("inf"), float("-inf"), float("nan"), True,
    None, "", " ", "yes", "0", "1e3", "-1 ms", "5 ms", "1e999 s", "10 Gbit/s", "0 bit/s", "12 parsecs", "٣", "µs",
    "日本", "a\nb", "\u202e", "x" * 300, [], {}, [[]], [1, 1], {"": 0}, {"kind": "none"}, [None], {"a": {"b": [1]}},
)  # fmt: skip
"""What no field is meant to have; some take some of it."""

SWAPS: dict[str, tuple[str, ...]] = {
    "method": tuple(METHODS),
    "methods": tuple(METHODS),
    "network": tuple(NETWORKS),
    "networks": tuple(NETWORKS),
    "hardware": tuple(HARDWARE),
    "schedules": tuple(SCHEDULES.names()),
}
"""Names that can stand in a field of this name, or in a list of it."""

FITTING: dict[str, tuple[Any, ...]] = {
    "workers": (1, 2, 3, 4, 5, 7, 8, 16),
    "steps": (1, 2, 3, 10),
    "seeds": (1, 2, [0], [3, 4]),
    "eval_every": (0, 1, 2, 5),
    "overlap": ("none", "ddp", "async"),
    "rule": ("eager", "rendezvous"),
    "algorithm": ("auto", "ring", "tree", None),
    "compute": ({"seconds": "1 ms"}, {"seconds": 0.01, "jitter": 0.3}, {"hardware": "cpu-core"}),
    "timeline_steps": (0, 1, 50),
    "dtype": ("float32", "float64", "bfloat16"),
    "bucket_size": ("1 MB", "25 MiB", 1),
    "stages": (1, 2, 3, 4),
    "microbatches": (1, 2, 4, 8),
    "lr": (1e-4, 1e-3, 0.01, "1e-2"),
    "period": (1, 2, 4, 100),
    "noise_std": (0.0, 0.1, 3),
    "faults": (
        {}, {"latency_jitter": 0.2}, {"stragglers": {"exponential_scale": 0.2}}, {"stragglers": {"pareto_shape": 3}},
        {"slow_links": [{"worker": 0, "bandwidth_divisor": 3}]},
    ),
}  # fmt: skip
"""Values that a field of this name often takes."""


ONE_PROCESS = {"compare": ("--jobs", "1")}


class Case(NamedTuple):
    """A command line; the text of the spec that it names, if it names ``spec.yaml``; and other files that are there."""

    number: int
    arguments: tuple[str, ...]
    text: str | None = None
    files: Mapping[str, str | bytes | None] = {}

    def __str__(self) -> str:
        files = f"beside {', '.join(self.files)}\n" if self.files else ""
        return f"case {self.number}: syncline {' '.join(self.arguments)}\n{self.text or ''}{files}"


def case(number: int) -> Case:
    """The case of this number."""
    draw = random.Random(f"case {number}")
    make: Callable[[int, random.Random], Case] = draw.choices(
        [spec_case, set_case, collectives_case, project_case, pipeline_case, list_case], [50, 20, 8, 8, 10, 4]
    )[0]
    return make(number, draw)


def spec_case(number: int, draw: random.Random) -> Case:
    """A bundled spec, as it is written or with all its defaults, with one to three places changed."""
    name = draw.choice([name for name in bundled() if not name.startswith("vtrain")])
    fields = small(spec_fields(name, draw), draw)
    changed(fields, draw, draw.choice([1, 1, 2, 3]))
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    if draw.random() < 0.03:
        text = garbled(text, draw)
    kind = fields.get("kind") if isinstance(fields, dict) else None
    command = (command_of_kind(kind) if isinstance(kind, str) else "") or "run"
    return Case(number, (command, "spec.yaml", *ONE_PROCESS.get(command, ())), text)


def spec_fields(name: str, draw: random.Random) -> dict[str, Any]:
    """Fields of a bundled spec, as it is written or with all its defaults."""
    fields: dict[str, Any] = yaml.safe_load(bundled()[name].read_text(encoding="utf-8"))
    if draw.random() < 0.4:
        fields = load_spec(name).model_dump(mode="json")
    return fields


def small(fields: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A landscape in place of a network, more often than not, and few steps: so that what is accepted can be run."""
    if fields.get("kind") in ("run", "compare"):
        fields |= {"steps": 3, "schedule": {}, "seeds": [0, 1], "workers": 4}
        fields["compute"] = {"seconds": "1 ms"}
        fields.pop("faults", None)
        if draw.random() < 0.7:
            fields["problem"] = draw.choice(["rosenbrock", "quadratic", {"kind": "rosenbrock", "noise_std": 1.0}])
    return fields


def changed(fields: dict[str, Any], draw: random.Random, times: int) -> None:
    """Change so many places, four times out of five to something that could stand there."""
    for _ in range(times):
        (_fit if draw.random() < 0.8 else _break)(fields, draw)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, one in inner for p in [(*path, key), *_places(one, (*path, key))]]


def _at(fields: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        fields = fields[key]
    return fields


def _fit(fields: dict[str, Any], draw: random.Random) -> None:
    """Something else that such a field can have; or a number of about that size."""
    given = [key for key in FITTING if key in fields]
    if given and draw.random() < 0.4:
        key = draw.choice(given)
        fields[key] = draw.choice(FITTING[key])
        return
    places = [p for p in _places(fields) if p[0] not in ("kind", "name")]
    if not places:
        return
    path = draw.choice(places)
    parent, value = _at(fields, path[:-1]), _at(fields, path)
    name = next((key for key in reversed(path) if isinstance(key, str)), "")
    if path[-1] in FITTING:
        parent[path[-1]] = copy.deepcopy(draw.choice(FITTING[path[-1]]))
    elif isinstance(value, str) and name in SWAPS and len(path) <= 2:
        parent[path[-1]] = draw.choice(SWAPS[name])
    elif isinstance(value, bool):
        parent[path[-1]] = not value
    elif isinstance(value, int):
        parent[path[-1]] = max(0, value + draw.choice([-1, 1, value]))
    elif isinstance(value, float):
        parent[path[-1]] = value * draw.choice([0.5, 0.9, 1.1, 1.5])
    elif isinstance(value, list) and len(value) > 1:
        draw.shuffle(value)


def _break(fields: dict[str, Any], draw: random.Random) -> None:
    """Something that few fields can have: another type, a near miss of a name, a key too few or too many."""
    path = draw.choice(_places(fields) or [("kind",)])
    parent, key = _at(fields, path[:-1]), path[-1]
    value = parent.get(key) if isinstance(parent, dict) else parent[key]
    how = draw.randrange(7)
    if how == 0:
        parent[key] = copy.deepcopy(draw.choice(WILD))
    elif how == 1 and isinstance(value, str) and value:
        at = draw.randrange(len(value))
        parent[key] = value[:at] + draw.choice(["", "x", "É", value[at] * 2]) + value[at + 1 :]
    elif how == 2:
        del parent[key]
    elif how == 3 and isinstance(parent, dict):
        parent[f"{key}s"] = parent.pop(key)
    elif how == 4:
        parent[key] = [value]
    elif how == 5:
        parent[key] = {"kind": value} if not isinstance(value, dict) else list(value)
    elif isinstance(parent, dict):
        parent[draw.choice(["extra", "seed", "kind", "lr", "name", "workers"])] = copy.deepcopy(draw.choice(WILD))
    else:
        parent += copy.deepcopy(parent)


def garbled(text: str, draw: random.Random) -> str:
    """No YAML, or more of it than somebody meant."""
    laughs = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else '0'}]" for i in range(12))
    at = draw.randrange(len(text))
    return draw.choice([
        text[:at] + draw.choice(["\t", "{", "]", "&a *a", "\x00", "!!python/object:os.system", "- "]) + text[at:],
        text + laughs + "\n", text + "name: twice\n", "&a [*a]", text + "x: " + "[" * 5000, text[:at],
        "!!python/object/apply:os.getcwd []\n", f"scales: {at}\n{text}",
    ])  # fmt: skip


def set_case(number: int, draw: random.Random) -> Case:
    """A bundled spec by its name, with fields set."""
    name = draw.choice([name for name in bundled() if not name.startswith(("vtrain", "pipeline", "validate"))])
    kind = yaml.safe_load(bundled()[name].read_text(encoding="utf-8"))["kind"]
    sets = []
    if kind in ("run", "compare"):
        sets = ["problem=rosenbrock", "steps=3", "schedule={}", "compute={seconds: 1 ms}", "faults={}", "seeds=[0]"]
        if kind == "compare":
            sets += ["methods=[ddp-adam, mt-dao]"]
        for _ in range(draw.choice([0, 1, 1, 2])):
            key = draw.choice(["workers", "seeds", "eval_every", "overlap", "rule", "dtype", "faults"])
            sets.append(f"{key}={json.dumps(draw.choice(FITTING[key]))}")
    if draw.random() < 0.3:
        sets.append(draw.choice(["", "=", "steps", "steps=[", "a.b.c=1", "methods.9.lr=1", "..=1", "method.lr.x=2",
                                 "steps=1e99", "workers=-0", "seeds={}", "problem.kind=&a [*a]", "name=../x",
                                 "steps=0x10", "steps=1_0", "network=nowhere", "networks=[wan, wan]"]))  # fmt: skip
    options = [part for one in sets for part in ("--set", one)]
    if draw.random() < 0.2:
        options += ["--network", draw.choice([*NETWORKS, "1ms,1Gbit/s", "0,1bit/s", "1ms", "x,y", "", "1ms,inf"])]
    return Case(number, (command_of_kind(kind), name, *options, *ONE_PROCESS.get(command_of_kind(kind), ())))


def collectives_case(number: int, draw: random.Random) -> Case:
    options = some_options(draw, {
        "--workers": (["1", "2", "3", "8", "16", "100"], ["0", "-1", "1000000000", "1e3", "x"]),
        "--bytes": (["1 B", "4 kB", "619MiB", "1e6", "0"], ["-1", "nan", "1e400", "inf", "1 parsec", ""]),
        "--network": ([*NETWORKS, "50us,10Gbit/s", "0 s,1 bit/s"], ["wann", "1ms,0bit/s", "1e300 s,1e300 bit/s", ","]),
        "--collective": (list(COLLECTIVES), ["all-reduce", ""]),
        "--algorithm": (["auto", "gloo", "nccl", "ring"], ["rng", "'"]),
        "--protocol": (["eager", "rendezvous"], ["lazy"]),
        "--starts": (["0,0,0,1.0", "0,5ms", "0"], ["0,,1", "nan,0", "-1,0", "1e300,0", "x"]),
    })  # fmt: skip
    return Case(number, ("collectives", *options))


def project_case(number: int, draw: random.Random) -> Case:
    options = some_options(draw, {
        "--workers": (["1", "2", "8,64", "512", "7"], ["0", "8,,8", "-1", "1e9", "99999999999999999999", "x"]),
        "--model": (["gpt-160m", "olmo-1b", "gpt-160m,olmo-1b"], ["gpt", "", "config.json"]),
        "--sequence": (["1", "128", "2048"], ["0", "-5", "x"]),
        "--hardware": (list(HARDWARE), ["h10", ""]),
        "--method": (["ddp-adam,diloco", *METHODS], ["adm", "{kind: ddp}", "{kind: ddp, lr: -1}", "[", "a,,b"]),
        "--network": ([*NETWORKS, "1ms,1Gbit/s"], ["x", "1ms,1e400bit/s"]),
        "--overlap": (["none", "ddp", "async"], ["dpp"]),
        "--algorithm": (["auto", "gloo", "nccl", "ring"], ["rng"]),
        "--set": (["steps=3", "tokens_per_worker=1", "compute={seconds: 1 ms}"], ["steps=0", "tokens_per_worker=1e40"]),
    })  # fmt: skip
    return Case(number, ("project", *options))


def pipeline_case(number: int, draw: random.Random) -> Case:
    options = some_options(draw, {
        "--schedule": (list(SCHEDULES.names()), ["1f2b", "gpipe,gpipe", ""]),
        "--stages": (["1", "2", "4", "8"], ["0", "-1", "1000000000"]),
        "--microbatches": (["1", "4", "8", "12"], ["0", "1000000000"]),
        "--forward": (["1", "20ms", "1,2,3,4", "0"], ["-1", "nan", "1e400", "x", "1,,2"]),
        "--backward": (["2", "40ms"], ["-1", "inf"]),
        "--backward-weight": (["1", "10ms"], ["-1", "100"]),
        "--chunks": (["1", "2"], ["0", "99999"]),
        "--max-in-flight": (["1", "2", "4,3,2,1"], ["0", "1.5"]),
        "--network": (["10gbe", "wan", "1ms,1Gbit/s"], ["x"]),
        "--activation-bytes": (["1MB", "0"], ["-1", "1e400"]),
        "--replicas": (["1", "2"], ["0", "1000000000"]),
        "--jitter": (["0", "0.3"], ["-1", "nan", "1e9"]),
        "--seed": (["0", "7"], ["-1", "1e3", "99999999999999999999"]),
    })  # fmt: skip
    return Case(number, ("pipeline", *options))


def list_case(number: int, draw: random.Random) -> Case:
    what = draw.choice(["methods", "models", "networks", "hardware", "problems", "specs", "schedules", "nothing"])
    options = some_options(draw, {"--model": (["gpt-160m", "olmo-1b"], ["gpt-16"])})
    return Case(number, ("list", what, *options))


def some_options(draw: random.Random, known: dict[str, tuple[list[str], list[str]]]) -> list[str]:
    """One to three of these, now and then with a value that is wrong; as JSON every other time."""
    out = []
    for name in draw.sample(list(known), min(draw.choice([1, 2, 3]), len(known))):
        good, bad = known[name]
        out += [f"{name}={draw.choice(bad if draw.random() < 0.15 else good)}"]
    return out + (["--json"] if draw.random() < 0.5 else [])


def write(one: Case, folder: Path) -> None:
    """The spec of a case where its command looks for it, and the other files."""
    given = dict(one.files) if one.text is None else {**one.files, "spec.yaml": one.text}
    for name, content in given.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:  # a folder where a file was
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
