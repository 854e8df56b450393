"""Parts of the page as HTML, by the macros of ``explore.html``: every text from outside the package is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from syncline.planner.assumptions import Assumption
from syncline.planner.explore.answers import Ranking
from syncline.planner.explore.pictures import interval_picture, swatch
from syncline.planner.explore.settings import BASELINE, BY_NAME, to_query
from syncline.planner.explore.words import duration_text, percent, speedup_text, ties, waiting
from syncline.planner.pages import templates
from syncline.questions.explore import OFFERED, PageSettings
from syncline.units import format_bytes

GROUPS = (
    ("Cluster", ("network", "sites", "workers", "hardware", "inside", "bandwidth", "latency")),
    ("Training", ("model", "replica", "batch", "tokens", "losses")),
    ("Methods", ("methods", "period", "compression")),
    ("Failures", ("mtbf", "restart", "storage")),
)

SLIDERS = ("sites", "workers", "bandwidth", "latency", "batch", "tokens", "period", "mtbf", "restart", "storage")
"""Settings with a slider along their stops and a text field."""

OF_SITES = ("sites", "workers", "inside")
"""Settings that a network of the command has itself; the style sheet hides them beside it."""


def filled(macro: str, *values: Any) -> str:
    """Return the HTML of a macro of ``explore.html`` with these arguments."""
    globals_ = {"swatch": lambda method: Markup(swatch(method))}
    template = templates("syncline.planner.explore").get_template("explore.html", globals=globals_)
    return str(getattr(template.module, macro)(*values)).strip()


def form(settings: PageSettings) -> str:
    """Return all controls, with the settings' values."""
    groups = [(title, [BY_NAME[name] for name in names]) for title, names in GROUPS]
    others = (name for name in settings.methods if name not in OFFERED)
    return filled("form", groups, settings, SLIDERS, [*OFFERED, *others], BASELINE, OF_SITES)


def ranking_table(ranking: Ranking, drawn: str = "") -> str:
    """Return the table of methods by the time of the training, with bounds; methods that do not fit come last.

    Args:
        ranking: the ranked rows.
        drawn: the method whose round is drawn.
    """
    timed = [row for row in ranking.rows if row["wall_clock_s"] is not None]
    ends = (
        min((row["wall_clock_low_s"] for row in timed), default=1.0),
        max((row["wall_clock_high_s"] for row in timed), default=1.0),
    )
    equal = ties(ranking.rows)
    fitting = [row for row in timed if row["fits"] is not False]
    others = [_cells(row, "", ends, False) for row in timed if row["fits"] is False]
    ranked = [_cells(row, str(place), ends, row["method"] in equal) for place, row in enumerate(fitting, start=1)]
    heads = [
        ("", "place"), ("method", ""), ("time of the training", "number"), ("nine of ten between", "between"),
        ("speedup", "number"), ("waits", "number"), ("sends per step", "number wide"), ("memory", "number wide"),
        ("loss", "number wide"), *([("goodput", "number wide")] if ranking.settings.mtbf else []),
    ]  # fmt: skip
    untimed = [row for row in ranking.rows if row["wall_clock_s"] is None]
    sections = [("", ranked), ("Does not fit into a worker's memory", others)]
    return filled("ranking_table", heads, sections, untimed, drawn)


def _cells(row: dict[str, Any], place: str, ends: tuple[float, float], tied: bool) -> dict[str, Any]:
    """Return the texts of a row; ``ends`` are the shortest and the longest time of all rows."""
    low, middle, high = (row[f"wall_clock{end}_s"] for end in ("_low", "", "_high"))
    around = f"{speedup_text(row['speedup_low'])} to {speedup_text(row['speedup_high'])}"
    loss = "unknown" if row["loss"] is None else f"{row['loss']:.3f}{'*' if row['extrapolation'] else ''}"
    goodput = [] if row.get("goodput") is None else [percent(row["goodput"])]
    return {
        "method": row["method"],
        "place": place,
        "tied": tied,
        "seconds": repr(middle),
        "time": duration_text(middle),
        "interval": Markup(interval_picture(low, middle, high, ends, row["method"])),
        "between": f"{duration_text(low)} to {duration_text(high)}",
        "speedup": speedup_text(row["speedup"]),
        "around": "baseline" if row["method"] == BASELINE else around if row["speedup"] is not None else "",
        "waits": percent(waiting(row)),
        "wide": [format_bytes(row["bytes_per_worker"]), format_bytes(row["memory_bytes"]), loss, *goodput],
    }


def key(methods: Iterable[str], values: Iterable[str]) -> str:
    """Return the names of the lines below a narrow picture."""
    return filled("key", list(zip(methods, values, strict=True)))


def figure(pictures: Sequence[str]) -> str:
    """Return one picture in several widths, broad to narrow; the style sheet shows the width that fits."""
    names = ("broad", "middle", "small", "narrow")
    return "".join(f'<div class="only-{name}">{picture}</div>' for name, picture in zip(names, pictures, strict=True))


def threshold_table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return the table of `syncline.planner.explore.words.threshold_rows`."""
    return filled("threshold_table", list(rows), BASELINE)


def bulleted(lines: Iterable[str], kind: str = "") -> str:
    """Return sentences as a list; an empty text without sentences."""
    return filled("bulleted", list(lines), kind)


def assumption_list(assumptions: Iterable[Assumption]) -> str:
    """Return the assumptions as a list of names, values and origins; the publication is the title of the origin."""
    return filled("assumption_list", list(assumptions))


def paragraph(text: str, kind: str = "") -> str:
    """Return a text as a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>'


def download_links(settings: PageSettings) -> str:
    """Return the buttons that copy the link and download the spec and the picture."""
    return filled("download_links", to_query(settings))
