"""The question of ``syncline explore``, and the settings of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import Question, option


class Explore(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline explore",
        "syncline explore --port 8080 --open",
        "syncline explore --network lab.yaml",
        "syncline explore 'model=gpt-1.3b&sites=4&workers=8&bandwidth=10 Gbit/s'",
    ),
):
    """Serve a local page that projects while you move settings: ranking, curves over bandwidth, one round.

    The page is reachable from this machine only (127.0.0.1) and needs no network. Ctrl-C ends the server.
    """

    network: Any = option(
        "Network of the workers: a name, or a file, as project takes it; the page starts with it in place of sites.",
        metavar="NAME",
    )
    link: str = option(
        "Initial settings: a link of the page, or its part after '?'.", "", metavar="[LINK]", positional=True
    )
    port: int = option("TCP port on this machine; by default any free port.", 0, metavar="N")
    open: bool = option("Open the page in the browser.", False)


@dataclass(frozen=True)
class Control:
    """A control of the page ``syncline explore``, with the values that it offers.

    Attributes:
        label: label on the page.
        help: a sentence on the meaning of the setting.
        kind: ``name``, ``method``, ``methods``, ``whole`` number, ``rate`` in bits, ``byte rate``, ``seconds``,
            ``hours`` or ``count`` of tokens.
        stops: values of the slider in order, or of the list; or the name of the catalogue that has them.
        low: smallest accepted number.
        high: largest accepted number.
        words: texts that stand for values on the page, and for numbers also in a link.
        note: a line below the control.
    """

    label: str
    help: str
    kind: str = "name"
    stops: Sequence[Any] | str = ()
    low: float = 0
    high: float = 0
    words: Mapping[Any, str] = field(default_factory=dict)
    note: str = ""


def control(default: Any, label: str, help: str, *number: Any, **appearance: Any) -> Any:
    """Declare a dataclass field of `PageSettings` with the control that sets it on the page."""
    return field(default=default, metadata={"control": Control(label, help, *number, **appearance)})


def round_numbers(low: float, high: float, mantissas: Sequence[float]) -> tuple[float, ...]:
    """Return round numbers from ``low`` to ``high``: the mantissas in every decade, as written."""
    numbers = [float(f"{mantissa}e{power}") for power in range(-15, 16) for mantissa in mantissas]
    return tuple(number for number in numbers if low * 0.999 <= number <= high * 1.001)


SITES = "sites"
"""Name of the network that the settings of sites and their lines describe."""

OWN, BY_FITS, NEVER = "own", "by fits", "never"
"""Texts on the page for values that each method sets, for a batch that published fits set, and for no failures."""

OFFERED = (
    "diloco", "streaming-diloco", "local-adam", "mt-dao", "des-loc", "demo", "powersgd", "top-k", "lion-cub", "dion",
)  # fmt: skip
"""Methods that have a box on the page. A link may name any other that ``syncline list methods`` has."""

COMPRESSIONS = {
    OWN: "each method's own", "bf16": "bf16", "8 bit": "8-bit integers", "4 bit": "4-bit integers",
    "top 1 %": "the largest 1 %",
}  # fmt: skip
LOSSES = {"seen": "where fits have seen them", "extrapolated": "beyond, marked *"}
REPLICAS = {
    "worker": "one worker",
    "node": "a node, tensor parallel",
    "site": "a site, data parallel",
    "nodes in a site": "a site, tensor parallel in nodes",
}
PERIODS = (0, 1, 2, 4, 8, 16, 30, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000)
RATES = tuple(rate * 1e9 / 8 for rate in round_numbers(1e-2, 1e3, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
HOURS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class PageSettings:
    """The settings of the page ``syncline explore``; the default is two sites of A100s, each a replica.

    The settings ``sites``, ``workers`` and ``inside`` have no effect if the command names a network.
    """

    model: str = control("llama-7b", "Model", "The model that is trained.", stops="models")
    hardware: str = control("a100", "Hardware", "The hardware of each worker.", stops="hardware")
    network: str = control(
        SITES, "Network", "The network of all workers: equal sites, or the network of the command.", stops="networks",
        words={SITES: "equal sites, as below"},
    )  # fmt: skip
    sites: int = control(
        2, "Sites", "Number of sites, each with a line to the others.", "whole", (1, 2, 3, 4, 5, 6, 8, 12, 16), 1, 64
    )  # fmt: skip
    workers: int = control(
        32, "Workers per site", "Number of workers of a site.", "whole", tuple(2**n for n in range(10)), 1, 1024
    )  # fmt: skip
    inside: str = control("dgx-a100", "Network of a site", "The network of the workers of a site.", stops="inside")
    bandwidth: float = control(
        1.25e8, "Bandwidth of a site's line", "Bandwidth of each site's line to the others, which its workers share.",
        "rate", RATES, 1.25e5, 1.25e11,
        note="of a network of the command: its narrowest line between places; all others change in proportion",
    )  # fmt: skip
    latency: float = control(
        0.02, "Latency of it, one way", "One-way latency of a site's line.", "seconds",
        round_numbers(1e-6, 0.5, (1, 1.5, 2, 3, 5, 7)), 1e-7, 1.0,
    )  # fmt: skip
    methods: tuple[str, ...] = control(
        ("diloco", "streaming-diloco", "mt-dao", "des-loc", "demo"), "Methods",
        "The methods beside ddp-adam, the baseline.", "methods", OFFERED,
    )  # fmt: skip
    period: int = control(
        30, "Steps between averages", "Number of steps between averages, of methods that average now and then.",
        "whole", PERIODS, 1, 10_000, {0: OWN},
        "of methods that average now and then; own: the period of each method's preset",
    )  # fmt: skip
    compression: str = control(
        OWN, "Sent as", "Format of the messages, of methods that can compress.", stops=tuple(COMPRESSIONS),
        words=COMPRESSIONS,
    )  # fmt: skip
    replica: str = control(
        "site", "A replica is", "The workers of a replica, and their parallelism.", stops=tuple(REPLICAS),
        words=REPLICAS,
    )  # fmt: skip
    batch: int = control(
        0, "Tokens per worker, step", "Number of tokens of a worker in a step.", "whole",
        (0, *(2**n for n in range(9, 21))), 1, 10**9, {0: BY_FITS},
        f"{BY_FITS}: a share of the batch between the best of data parallelism and of DiLoCo",
    )  # fmt: skip
    tokens: float = control(
        140e9, "Tokens of the training", "Number of tokens of the training.", "count",
        round_numbers(1e9, 2e13, (1, 1.4, 2, 3, 5, 7)), 1e6, 1e15,
    )  # fmt: skip
    losses: str = control(
        "seen", "Losses", "Whether losses are predicted outside the range of the published fits.",
        stops=tuple(LOSSES), words=LOSSES,
    )  # fmt: skip
    mtbf: float = control(
        0.0, "A worker fails once in", "Mean time between failures of a worker.", "hours",
        (0, *(3600.0 * hours for hours in HOURS)), 3600.0, 1e10, {0.0: NEVER},
        "in the mean; 50,000 hours on the 16,384 GPUs of Llama 3",
    )  # fmt: skip
    restart: float = control(
        300.0, "To start again", "Time to start the processes again after a failure.", "seconds",
        (0.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0), 0.0, 1e5,
    )  # fmt: skip
    storage: float = control(
        1e11, "Checkpoints are written at", "Total bandwidth at which all workers write a checkpoint.", "byte rate",
        round_numbers(1e9, 1e12, (1, 2, 5)), 1e6, 1e14,
    )  # fmt: skip
    shown: str = control(
        "", "Round of", "The method whose round is drawn; by default the first of the ranking.", "method"
    )
