"""Every command as a row: its arguments and options, with values that it takes and values that it does not.

A case is a function of its number, as in `tests.robustness.mutations`, and of the folders of results that this machine
makes. A new command needs a row in `COMMANDS`; a test holds the table to the commands that there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncline.cli import commands
from syncline.costmodel import HARDWARE, NETWORKS
from syncline.methods import METHODS
from tests.robustness import more_mutations, mutations
from tests.robustness.damage import KINDS, damaged, folder_files
from tests.robustness.mutations import Case, some_options

FIRST = 20_000
"""The number of the first of these cases."""

Values = tuple[Sequence[str], Sequence[str]]
"""What a command takes in a place, and what it does not."""

LONG = "x" * 3000
NUMBERS = ["0", "-1", "nan", "inf", "1e400", "1e30", "x", "", "10ms", "é", "٣", "[1", "true", "{a: 1}", LONG]
TIMES = ["0", "-1 s", "nan", "inf", "1e400 s", "x", "5 parsecs", "µs", "", LONG]
NETS: Values = ([*NETWORKS, "1ms,1Gbit/s"], ["x", "", ",", "1ms", "0,1bit/s", "1ms,1e400bit/s", "é", LONG])
METHODS_OF: Values = (["ddp-adam", "diloco", "ddp-adam,diloco", *METHODS], ["adm", "a,,b", "[", "{kind: ddp}", LONG])
MODELS: Values = (["gpt-160m", "olmo-1b", "{layers: 2, width: 64, heads: 2}"], ["gpt", "", "[", "config.json", LONG])
WORKERS: Values = (["2", "4", "8"], ["0", "1e9", "99999999999999999999", *NUMBERS])
MACHINES: Values = (list(HARDWARE), ["h10", "", "[", LONG])
TOKENS: Values = (["1B", "20B", "1e9"], NUMBERS)
FAILURES: Values = (
    ["1 d", "5 h", "0.5s", "30 d"], ["-1 d", "x", "{mtbf: 1}", "[", "nowhere.yaml", "1e400 s", "0", LONG],
)  # fmt: skip
OUT: Values = (["new"], ["spec.yaml", "spec.yaml/x", "", ".", LONG, f"{'y' * 200}/" * 15])
PLACES = ["nowhere", "", "..", "/", "/dev/null", "spec.yaml", "é", LONG]


@dataclass(frozen=True)
class Command:
    """How command lines of a command are made.

    Attributes:
        weight: how often, beside the others.
        options: values by option.
        arguments: values of each argument, in their order.
        always: options that keep what is accepted small.
        folders: how many folders of results it reads, as its first arguments.
        kinds: of which kinds these are.
        make: another function that makes a case, in place of all this.
        is_run: whether what is accepted is run to its end.
        is_reader: whether it must change no file that is there.
    """

    weight: float
    options: Mapping[str, Values] | None = None
    arguments: tuple[Values, ...] = ()
    always: tuple[str, ...] = ()
    folders: tuple[int, ...] = ()
    kinds: tuple[str, ...] = tuple(KINDS)
    make: Callable[[int, random.Random], Case] | None = None
    is_run: bool = True
    is_reader: bool = False


def _reader(weight: float, options: Mapping[str, Values], folders: tuple[int, ...] = (1,), **fields: object) -> Command:
    return Command(weight, options, folders=folders, is_reader=True, **fields)  # type: ignore[arg-type]


COLUMNS: dict[str, Values] = {"--columns": (["all", "loss", "method,network"], ["nosuch", "", ",", LONG])}
TARGETS: dict[str, Values] = {
    "--deadline": (["30d", "1 h"], TIMES), "--step-time": (["2s", "50 ms"], TIMES),
    "--utilisation": (["0.1", "40%"], NUMBERS), "--compute-utilisation": (["0.5", "80%"], NUMBERS),
    "--exposed": (["5%", "0.5"], NUMBERS), "--speedup": (["2"], NUMBERS), "--loss-penalty": (["1%"], NUMBERS),
}  # fmt: skip
TRACES = ("trace", "whatif", "compare")
SPECS = Command(30, make=mutations.spec_case, is_run=False)

ROWS: dict[str, Command] = {
    "run": SPECS,
    "compare": Command(12, make=mutations.set_case, is_run=False),
    "collectives": Command(5, make=mutations.collectives_case),
    "project": Command(5, make=mutations.project_case),
    "pipeline": Command(5, make=mutations.pipeline_case),
    "list": Command(2, make=mutations.list_case),
    "sweep": Command(10, make=more_mutations.sweep_case, is_run=False),
    "launch": Command(5, make=more_mutations.launch_case, is_run=False),
    "calibrate": Command(4, make=more_mutations.calibrate_case, is_run=False),
    "validate": Command(5, make=more_mutations.validate_case, is_run=False),
    "rm": Command(3, make=more_mutations.rm_case),
    "doctor": Command(1, make=more_mutations.doctor_case, is_reader=True),
    "advise": Command(
        2,
        {
            "--model": MODELS, "--network": NETS, "--hardware": MACHINES, "--workers": WORKERS, "--tokens": TOKENS,
            "--target-loss": (["2.5", "3"], NUMBERS), "--batch-tokens": (["1M"], NUMBERS),
            "--budget": (["50k"], NUMBERS), "--deadline": (["30d"], TIMES), "--failures": FAILURES,
            "--sequence": (["512"], NUMBERS), "--prices": (["aws-p5-2026-11"], PLACES), "--csv": OUT,
        },
        always=("--model=gpt-160m", "--network=wan", "--hardware=h100", "--workers=4", "--method=ddp-adam,diloco"),
    ),
    "solve": Command(
        6,
        {
            **TARGETS, "--network": NETS, "--method": METHODS_OF, "--workers": WORKERS, "--tokens": TOKENS,
            "--target-loss": (["2.5"], NUMBERS), "--most": (["64"], NUMBERS), "--level": (["0"], NUMBERS),
            "--among": (["1gbe=400,10gbe=2k", "wan,10gbe"], ["=", "x=1", "wan=-1", "", LONG]),
        },
        arguments=((["bandwidth", "latency", "period", "workers", "network"], ["tokens", "", LONG]),),
        always=("--step-time=1s", "--method=diloco"),
    ),
    "loss": Command(
        4,
        {
            "--method": METHODS_OF, "--tokens": TOKENS, "--replicas": (["1", "2,4"], NUMBERS),
            "--period": (["30", "10,100"], NUMBERS), "--batch-tokens": (["1M"], NUMBERS),
            "--fit": (["all", "diloco", "chinchilla"], ["dilco", "", LONG]), "--target-loss": (["2.4"], NUMBERS),
        },
        arguments=((["1.3B", "7B", "350M,1B"], ["", ",", *NUMBERS]),),
    ),
    "goodput": Command(
        4,
        {
            "--failures": FAILURES, "--workers": (["8", "16,64"], NUMBERS), "--step-time": (["1 s"], TIMES),
            "--recovery": (["restart", "elastic"], ["nosuch", ""]), "--interval": (["1 h", "best", "never"], TIMES),
            "--checkpoint": (["1 min"], TIMES), "--size": (["2TB"], ["-1", "x", "nan", LONG]),
            "--bandwidth": (["100GB/s"], ["0", "x", "-1 B/s", "nan"]),
            "--mode": (["blocking", "asynchronous", "peer"], ["x"]), "--restart": (["5 min"], TIMES),
            "--repair": (["1 h"], TIMES), "--spares": (["1"], NUMBERS), "--for": (["2 d"], TIMES),
            "--seeds": (["1", "2"], NUMBERS), "--period": (["1", "30"], NUMBERS),
        },
        always=("--failures=1 d", "--workers=16", "--for=2 d"),
    ),
    "explore": Command(
        2,
        {"--port": (["0", "8080"], ["-1", "99999", "x", "", LONG])},
        arguments=((["", "model=gpt-1.3b&sites=4", "bandwidth=10 Gbit/s"],
                    ["model=x", "workers=-1", "workers=1e30", "&&&", "latency=nan", "é=1", "a=b", LONG]),),
        is_run=False,
    ),
    "trace": Command(
        3,
        {
            "--network": NETS, "--hardware": MACHINES, "--host": (["ahead", "waits"], ["x"]), "--workers": WORKERS,
            "--target-loss": (["2"], NUMBERS), "--ranks": (["0,1"], ["x", "", "-1", "9" * 30]), "--out": OUT,
        },
        arguments=((["spec.yaml", "-m"], ["nowhere.py", "--", "", LONG]),),
        is_run=False,
    ),
    "reproduce": Command(0.3, {"--plot": OUT}, arguments=((["demo", "mt-dao"], ["x", "", "é", LONG]),)),
    "replicate": Command(
        4,
        {
            "--scale": (["cpu", "gpu"], ["x", "", LONG]), "--seeds": (["1", "[3, 4]"], ["0", "-1", "[", "x", "1e9"]),
            "--most": (["1"], NUMBERS), "--for": (["1 s"], TIMES), "--jobs": (["1"], ["0", "-1", "x"]),
        },
        arguments=((["r/1/tiny.yaml", "mt-dao"], ["nosuch", "", "spec.yaml", LONG]),),
        always=("--out=r/1", "--jobs=1"), folders=(0,), kinds=("replication",), is_run=False,
    ),
    "runs": _reader(2, {}, folders=(0, 1, 2)),
    "show": _reader(14, {**COLUMNS, "--folder": (["r", "."], PLACES)}),
    "report": _reader(
        14, {"--out": (["new.html"], OUT[1]), "--title": (["a <b>"], ["", "\ud800", LONG])}, folders=(1, 2)
    ),
    "best": _reader(
        6,
        {**COLUMNS, "--by": (["loss", "wall_clock_s", "step_time_s"], ["seed", "", "method", LONG]),
         "--top": (["1", "20"], NUMBERS)},
        kinds=("sweep",),
    ),
    "whatif": _reader(
        6,
        {
            "--network": NETS, "--hardware": MACHINES, "--host": (["ahead", "waits"], ["x"]), "--out": OUT,
            "--scale-bandwidth": ([".5", "2"], NUMBERS), "--scale-latency": ([".5", "0"], NUMBERS),
            "--scale-compute": (["2"], NUMBERS), "--overlap": (["on", "off"], ["x", ""]),
            "--target-loss": (["0.4"], NUMBERS),
        },
        folders=(1, 2), kinds=TRACES,
    ),
    "chakra": _reader(
        3,
        {"--hardware": MACHINES, "--host": (["ahead", "waits"], ["x"]), "--out": OUT},
        arguments=((["export"], ["import", "x", ""]),), kinds=TRACES,
    ),
    "verify": _reader(6, {}),
    "same": _reader(6, {}, folders=(2,)),
}  # fmt: skip
"""All commands, with those that an installation may not have."""

COMMANDS = {name: ROWS[name] for name in commands.COMMANDS if name in ROWS}
"""The rows of the commands that there are."""


def table_case(number: int) -> Case:
    """Return the case of this number."""
    draw = random.Random(f"table {number}")
    name = draw.choices([*COMMANDS], [row.weight for row in COMMANDS.values()])[0]
    row = COMMANDS[name]
    return row.make(number, draw) if row.make is not None else _drawn(number, name, row, draw)


def _drawn(number: int, name: str, row: Command, draw: random.Random) -> Case:
    arguments = [draw.choice(bad if draw.random() < 0.15 else good) for good, bad in row.arguments]
    files: dict[str, str | bytes | None] = {}
    for at in range(draw.choice(row.folders or (0,)) or (name in ("replicate", "runs"))):
        kind = draw.choice(row.kinds)
        inside = dict(folder_files(kind))
        for _ in range(draw.choice([0, 1, 1, 1, 2])):
            damaged(inside, draw)
        files |= {f"r/{at + 1}/{path}": data for path, data in inside.items()}
        if name not in ("replicate", "runs"):
            arguments.append(f"r/{at + 1}" if draw.random() < 0.95 else draw.choice(PLACES))
    if name == "runs":
        arguments.append("r" if draw.random() < 0.9 else draw.choice(PLACES))
    options = some_options(draw, dict(row.options or {})) if draw.random() < (0.5 if row.is_reader else 0.9) else []
    if "--json" not in _options_of(name):
        options = [one for one in options if one != "--json"]
    kept = [one for one in row.always if not any(given.split("=")[0] == one.split("=")[0] for given in options)]
    if name == "trace":
        return Case(number, (name, *options, "--", *arguments), "pass\n", files)
    return Case(number, (name, *arguments, *kept, *options), None, files)


def _options_of(name: str) -> set[str]:
    return {option for parameter in commands.command_of(name).params for option in parameter.opts}
