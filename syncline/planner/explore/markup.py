"""Parts of the page as HTML: every text from outside the package is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from syncline.planner.assumptions import Assumption
from syncline.planner.explore.answers import Ranking
from syncline.planner.explore.pictures import interval_picture, swatch
from syncline.planner.explore.settings import BASELINE, BY_NAME, Field, to_query
from syncline.planner.explore.words import duration_text, percent, speedup_text, ties, waiting
from syncline.questions.explore import OFFERED, PageSettings
from syncline.units import format_bytes

GROUPS = (
    ("Cluster", ("sites", "workers", "hardware", "inside", "bandwidth", "latency")),
    ("Training", ("model", "replica", "batch", "tokens", "losses")),
    ("Methods", ("methods", "period", "compression")),
    ("Failures", ("mtbf", "restart", "storage")),
)

SLIDERS = ("sites", "workers", "bandwidth", "latency", "batch", "tokens", "period", "mtbf", "restart", "storage")
"""Settings with a slider along their stops and a text field."""


def form(settings: PageSettings) -> str:
    """Return all controls, with the settings' values."""
    groups = []
    for title, names in GROUPS:
        controls = "".join(_control(BY_NAME[name], settings) for name in names)
        groups.append(f"<fieldset><legend>{title}</legend>{controls}</fieldset>")
    inside = f'<form id="settings" autocomplete="off" aria-label="Settings">{"".join(groups)}</form>'
    return f'<details id="panel" open><summary>Settings</summary>{inside}</details>'


def _control(field: Field, settings: PageSettings) -> str:
    value = getattr(settings, field.name)
    if field.name == "methods":
        return _boxes(value)
    return _slider(field, value) if field.name in SLIDERS else _select(field, value)


def _label(field: Field) -> str:
    return f'<label for="{field.name}" title="{escape(field.control.help)}">{escape(field.control.label)}</label>'


def _slider(field: Field, value: Any) -> str:
    name = field.name
    texts = "|".join(escape(field.text(stop)) for stop in field.stops)
    stops = "|".join(escape(field.write(stop)) for stop in field.stops)
    shown = escape(field.text(value))
    return (
        f'<div class="control">{_label(field)}'
        f'<input class="typed" id="{name}-text" data-name="{name}" value="{shown}" spellcheck="false" '
        f'aria-label="{escape(field.control.label)}, typed">'
        f'<input type="range" id="{name}" name="{name}" min="0" max="{len(field.stops) - 1}" step="1" '
        f'value="{field.place(value)}" data-stops="{stops}" data-told="{texts}" aria-valuetext="{shown}">'
        f"{f'<small>{escape(field.control.note)}</small>' if field.control.note else ''}</div>"
    )


def _select(field: Field, value: Any) -> str:
    def option(stop: Any) -> str:
        chosen = " selected" if stop == value else ""
        return f'<option value="{escape(field.write(stop))}"{chosen}>{escape(field.text(stop))}</option>'

    options = "".join(map(option, field.stops))
    return f'<div class="control">{_label(field)}<select id="{field.name}" name="{field.name}">{options}</select></div>'


def _boxes(chosen: Sequence[str]) -> str:
    boxes = [_box(BASELINE, True, fixed=True)]
    boxes += [_box(name, name in chosen) for name in (*OFFERED, *(name for name in chosen if name not in OFFERED))]
    return f'<div class="boxes" role="group" aria-label="Methods">{"".join(boxes)}</div>'


def _box(name: str, checked: bool, fixed: bool = False) -> str:
    state = f"{' checked' if checked else ''}{' disabled' if fixed else ''}"
    note = " <small>baseline</small>" if fixed else ""
    return (
        f'<label class="box"><input type="checkbox" name="methods" value="{escape(name)}"{state}>'
        f"{swatch(name)}<span>{escape(name)}{note}</span></label>"
    )


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
    fitting = [row for row in timed if row["fits"] is not False]
    others = [row for row in timed if row["fits"] is False]
    untimed = [row for row in ranking.rows if row["wall_clock_s"] is None]
    equal, failing = ties(ranking.rows), bool(ranking.settings.mtbf)
    columns = 9 + failing
    body = [_row(row, place, ends, row["method"] in equal, drawn) for place, row in enumerate(fitting, start=1)]
    if others:
        body.append(_section("Does not fit into a worker's memory", columns))
        body += [_row(row, None, ends, False, drawn) for row in others]
    if untimed:
        body.append(_section("No time", columns))
        body += [_untimed(row, columns) for row in untimed]
    heads = (
        ("", "place"), ("method", ""), ("time of the training", "number"), ("nine of ten between", "between"),
        ("speedup", "number"), ("waits", "number"), ("sends per step", "number wide"), ("memory", "number wide"),
        ("loss", "number wide"), *([("goodput", "number wide")] if failing else []),
    )  # fmt: skip
    head = "".join(f'<th scope="col" class="{kind}">{text}</th>' for text, kind in heads)
    return f'<table class="ranking"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


TIED = '<span class="tie">tie</span>'


def _section(text: str, columns: int) -> str:
    return f'<tr class="section"><th colspan="{columns}" scope="rowgroup">{text}</th></tr>'


def _row(row: dict[str, Any], place: int | None, ends: tuple[float, float], tie: bool, drawn: str) -> str:
    low, middle, high = (row[f"wall_clock{end}_s"] for end in ("_low", "", "_high"))
    bounds_text = f"{duration_text(low)} to {duration_text(high)}"
    method = escape(row["method"])
    pressed = str(row["method"] == drawn).lower()
    name = (
        f'<button type="button" class="show" data-method="{method}" title="Draw its round" aria-pressed="{pressed}">'
        f"{method}</button>"
    )
    loss = "unknown" if row["loss"] is None else f"{row['loss']:.3f}{'*' if row['extrapolation'] else ''}"
    around = f"{speedup_text(row['speedup_low'])} to {speedup_text(row['speedup_high'])}"
    around = "baseline" if row["method"] == BASELINE else around if row["speedup"] is not None else ""
    cells = (
        ("place", "" if place is None else f"{place}"),
        ("method", f"{swatch(row['method'])}{name}{TIED if tie else ''}"),
        ("number strong", f'<span data-seconds="{middle!r}">{duration_text(middle)}</span>'),
        ("between", f"{interval_picture(low, middle, high, ends, row['method'])}<small>{bounds_text}</small>"),
        ("number", f"{speedup_text(row['speedup'])}<small>{around}</small>"),
        ("number", percent(waiting(row))),
        ("number wide", format_bytes(row["bytes_per_worker"])),
        ("number wide", format_bytes(row["memory_bytes"])),
        ("number wide", loss),
        *([] if row.get("goodput") is None else [("number wide", percent(row["goodput"]))]),
    )
    shown = "".join(f'<td class="{kind}">{text}</td>' for kind, text in cells)
    return f'<tr data-method="{method}">{shown}</tr>'


def _untimed(row: dict[str, Any], columns: int) -> str:
    method = escape(row["method"])
    why = escape(str(row["not_timed"]))
    cells = f'<td class="method">{swatch(row["method"])}{method}</td><td colspan="{columns - 2}">{why}</td>'
    return f"<tr><td></td>{cells}</tr>"


def key(methods: Iterable[str], values: Iterable[str]) -> str:
    """Return the names of the lines below a narrow picture."""
    items = "".join(
        f"<li>{swatch(name)}<span>{escape(name)} <b>{escape(value)}</b></span></li>"
        for name, value in zip(methods, values, strict=True)
    )
    return f'<ul class="key">{items}</ul>'


def figure(pictures: Sequence[str]) -> str:
    """Return one picture in several widths, broad to narrow; the style sheet shows the width that fits."""
    names = ("broad", "middle", "small", "narrow")
    return "".join(f'<div class="only-{name}">{picture}</div>' for name, picture in zip(names, pictures, strict=True))


def threshold_table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return the table of `syncline.planner.explore.words.threshold_rows`."""
    body = "".join(
        f'<tr><td class="method">{swatch(name)} {escape(name)}</td>'
        f"<td>{escape(faster)}</td><td>{escape(full)}</td></tr>"
        for name, faster, full in rows
    )
    heads = ("method", f"5% faster than {BASELINE}", "within 5% of its shortest step")
    head = "".join(f'<th scope="col">{heading}</th>' for heading in heads)
    return f'<table class="ranking told"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>' if body else ""


def bulleted(lines: Iterable[str], kind: str = "") -> str:
    """Return sentences as a list; an empty text without sentences."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def assumption_list(assumptions: Iterable[Assumption]) -> str:
    """Return the assumptions as a list of names, values and origins; the publication is the title of the origin."""
    items = "".join(
        f"<div><dt>{escape(item.name)}</dt><dd>{escape(item.text)} "
        f'<small title="{escape(item.source)}">({escape(item.origin)})</small></dd></div>'
        for item in assumptions
    )
    return f'<dl class="assumptions" aria-label="Assumptions">{items}</dl>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a text as a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>'


def download_links(settings: PageSettings) -> str:
    """Return the buttons that copy the link and download the spec and the picture."""
    query = escape(to_query(settings))
    return (
        '<button type="button" id="copy">Copy link</button>'
        f'<a class="button" href="spec.yaml?{query}" download="explored.yaml">Spec</a>'
        f'<a class="button" href="picture.svg?{query}" download="explored.svg" data-picture>Picture (SVG)</a>'
        '<button type="button" id="png">Picture (PNG)</button>'
    )
