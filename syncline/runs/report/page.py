"""The HTML page of results, a single file that works offline, and its colours on light and dark backgrounds."""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Group
from rich.constrain import Constrain
from rich.text import Text

from syncline.analysis.style import method_styles
from syncline.errors import SpecError
from syncline.files import atomic_path, refuse_changed_files
from syncline.planner import pages
from syncline.planner.pages import templates
from syncline.planner.tables.layout import Sheet
from syncline.planner.tables.table import RowsTable, as_text
from syncline.runs.folders.result_files import json_value
from syncline.runs.report.charts import collectives_chart, loss_lines, names_of_lines, spans_chart
from syncline.runs.report.reported import Reported, provenance_of, titled
from syncline.runs.report.sentences import caveats_of, summary_of_result, warnings_of
from syncline.runs.report.shares import ranges_of, time_shares
from syncline.version import __version__

LIGHT = pages.LIGHT | {
    "page": "#f6f8fa", "link": "#0550ae", "bad": "#a40e26", "band": "0.16", "compute": "#0072b2", "encode": "#7b2d61",
    "trigger": "#009e73", "optimizer": "#56748f", "inside": "#8a3300", "exposed": "#e69f00", "network": "#e69f00",
    "wait": "#7d8894", "forward": "#2f7ebd", "backward": "#3f8f4f", "weight": "#b07c10", "on": "#ffffff",
}  # fmt: skip
DARK = pages.DARK | {
    "page": "#0d1013", "link": "#6cb6ff", "bad": "#ff9d8a", "band": "0.26", "compute": "#3f9bd6", "encode": "#c983b4",
    "trigger": "#2fbf95", "optimizer": "#8fb0cc", "inside": "#c9713c", "exposed": "#e69f00", "network": "#e69f00",
    "wait": "#77828d", "forward": "#5fa8df", "backward": "#6cbf7c", "weight": "#d9a845", "on": "#0d1013",
}  # fmt: skip
"""Colours by the name of the CSS variable, for example ``--ink``."""

MIN_CONTRAST = 3.0
"""Smallest contrast of a graphic with its background, from WCAG 2.2 (1.4.11)."""

PIXELS_PER_DASH_UNIT = 2
"""Pixels of matplotlib's unit of dash lengths, the width of the line."""


def contrast(color: str, other: str) -> float:
    """Return the contrast of two colours, (L1 + 0.05) / (L2 + 0.05), of their relative luminances L1 >= L2 (WCAG 2.2).

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    lighter, darker = sorted((_luminance(color), _luminance(other)), reverse=True)
    return round((lighter + 0.05) / (darker + 0.05), 9)


def legible(color: str, ground: str) -> str:
    """Return a colour of the same hue that is light or dark enough for the background ``ground``.

    On a dark background light and dark are swapped first, so that shades of a hue differ as much as they do on white.

    >>> legible("#0072B2", "#ffffff"), legible("#000000", "#14181c")
    ('#0072b2', '#ffffff')
    """
    hue, lightness, saturation = colorsys.rgb_to_hls(*_red_green_blue(color))
    step_of_lightness = -0.01
    is_dark_ground = _luminance(ground) < 0.2  # about where white begins to contrast more than black
    if is_dark_ground:
        lightness, step_of_lightness = 1 - lightness, 0.01
    while True:
        channels = [min(max(channel, 0.0), 1.0) for channel in colorsys.hls_to_rgb(hue, lightness, saturation)]
        candidate = "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
        if contrast(candidate, ground) >= MIN_CONTRAST:
            return candidate
        lightness += step_of_lightness


def styles_of(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each method's line, with the colour and dashes that it has in figures, by method.

    Returns:
        For each method its colours on a ``light`` and on a ``dark`` background, and ``dash``: the lengths of its dashes
        and gaps in pixels, as in SVG; empty for a solid line.
    """
    styles = {}
    for label, style in method_styles(methods).items():
        dash_lengths: Sequence[float] = ()
        if not isinstance(style.linestyle, str):  # a pair of matplotlib: offset, lengths
            _, dash_lengths = style.linestyle
        styles[label] = {
            "light": legible(style.color, LIGHT["ground"]), "dark": legible(style.color, DARK["ground"]),
            "dash": " ".join(f"{PIXELS_PER_DASH_UNIT * length:g}" for length in dash_lengths),
        }  # fmt: skip
    return styles


def css_of_themes(styles: Sequence[dict[str, Any]]) -> str:
    """Return the variables of both themes as CSS; ``--m0``, ``--m1`` and so on are the methods' colours."""

    def rule_of_root(selector: str, name: str, theme: dict[str, str]) -> str:
        colors = theme | {f"m{index}": style[name] for index, style in enumerate(styles)}
        variables = "".join(f"--{variable}:{color};" for variable, color in colors.items())
        return f":root{selector}{{color-scheme:{name};{variables}}}"

    chosen_dark = rule_of_root('[data-theme="dark"]', "dark", DARK)
    dark_of_system = rule_of_root(":not([data-theme])", "dark", DARK)
    return (
        rule_of_root("", "light", LIGHT)
        + f"@media screen{{{chosen_dark}}}"
        + f"@media screen and (prefers-color-scheme:dark){{{dark_of_system}}}"
    )


def _red_green_blue(color: str) -> tuple[float, float, float]:
    """Return red, green and blue, from 0 to 1, of a colour such as ``#0072b2``."""
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _luminance(color: str) -> float:
    """Return the relative luminance of a colour in sRGB, as WCAG 2.2 defines it."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = _red_green_blue(color)
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


GENERATOR = "syncline report"
"""The generator that a page names; a file that does not name it is not replaced."""

SCRIPTS = ("scales.js", "plot.js", "lines.js", "spans.js", "placement.js", "page.js")
"""Scripts in their order in the page."""

FOLDER = Path(__file__).parent


class ReportPage:
    """An HTML page of results, which a notebook shows.

    Attributes:
        path: the file of the page; None if it was not written.
    """

    def __init__(self, html: str, path: Path | None) -> None:
        self.html, self.path = html, path

    def _repr_html_(self) -> str:
        """Return the page inside a frame, which keeps its styles and scripts apart from those of a notebook."""
        frame = 'style="width:100%;height:720px;border:1px solid #8888;border-radius:8px"'
        return f'<iframe title="Syncline report" {frame} srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        place = "" if self.path is None else f", {self.path}"
        return f"<report: {len(self.html.encode()):,} bytes{place}>"


def write_page(results: Sequence[Reported], out: str | Path | None, title: str) -> ReportPage:
    """Return one HTML page of several results, and write it to the file ``out`` unless that is None.

    Raises:
        SpecError: ``out`` exists and is no page of results, or it cannot be written.
    """
    html = report_page(results, title)
    if out is None:
        return ReportPage(html, None)
    path = Path(out)
    try:
        if path.is_file() and path.stat().st_size:
            with path.open(encoding="utf-8", errors="replace") as existing:
                beginning = existing.read(2000)  # a report names its generator in its first lines
            if f'content="{GENERATOR}' not in beginning:
                raise SpecError("--out", str(path), "a new file, or a report, which is replaced")
        with atomic_path(path) as working:
            working.write_text(html, encoding="utf-8")
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    return ReportPage(html, path)


def report_page(results: Sequence[Reported], title: str = "") -> str:
    """Return an HTML page of one result or several; it loads no other file.

    Args:
        title: title of the page; by default made of the results' titles.

    Raises:
        SynclineError: the files of a result do not fit it, because they were changed.
    """
    results = titled(results)
    names_in_all_results: list[str] = []
    for result in results:
        with refuse_changed_files(_path_of_result(result)):
            names_in_all_results += names_of_lines(result)
    # A name has one colour on the whole page, so all names are collected before the first chart.
    names = list(dict.fromkeys(names_in_all_results))
    styles = styles_of(names)
    charts: dict[str, Any] = {}
    sections = []
    for number, result in enumerate(results, start=1):
        with refuse_changed_files(_path_of_result(result)):
            sections.append(_section(number, result, names, charts))
    titles = [result.title for result in results]
    if not title:
        title = titles[0] if len(titles) == 1 else f"{len(titles)} results: {', '.join(titles)}"
    scripts = "\n".join(_file_text(name) for name in SCRIPTS)
    line_styles = [{"name": name, "dash": style["dash"]} for name, style in styles.items()]
    return templates("syncline.runs.report").get_template("report.html").render(
        title=title, generator=f"{GENERATOR} {__version__}",
        style=Markup(css_of_themes(list(styles.values())) + _file_text("report.css")),
        script=Markup("(()=>{'use strict';\n" + scripts + "\n})()"),
        data=json_for_script({"styles": line_styles, "charts": charts}), sections=sections,
    )  # fmt: skip


def json_for_script(value: Any) -> Markup:
    """Return a value as JSON for an HTML script element; no text in it can end the element or begin a comment.

    >>> print(json_for_script({"name": "</script>"}))
    {"name":"\\u003c/script\\u003e"}
    """
    text = json.dumps(json_value(value), separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _path_of_result(result: Reported) -> Path:
    """Return the path that an error about a result's files names: its folder, or its title without a folder."""
    return result.folder if result.folder is not None else Path(result.title)


def _section(number: int, result: Reported, names: Sequence[str], charts: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of the template for a result's section, and add the result's charts to ``charts``.

    Args:
        names: names of the lines and bars of all results, in the order of their colours.
    """
    is_pipeline = any("makespan_s" in row for row in result.rows)
    noun_of_rows = "schedule" if is_pipeline else "comparison" if result.command == "replicate" else "method"
    section: dict[str, Any] = {
        "id": f"r{number}", "title": result.title, "named": noun_of_rows, "words": summary_of_result(result),
        "tables": [drawn_table(table) for table in result.tables],
        "warnings": warnings_of(result), "findings": result.findings, "caveats": caveats_of(result),
        "losses": None, "shares": None, "ranges": [], "spans": None, "placement": "", "missing": "",
        "origin": provenance_of(result),
    }  # fmt: skip
    if result.command != "sweep":
        section |= {"shares": time_shares(result.rows), "ranges": ranges_of(result.rows)}
    missing = []

    losses, note = loss_lines(result, names)
    if losses is None:
        missing.append("losses over the steps")
    else:
        charts[f"r{number}-losses"] = losses
        seeds = max(line["seeds"] for line in losses["series"])
        section["losses"] = {"id": f"r{number}-losses", "seeds": seeds, "note": note, "label": losses["label"]}

    timeline_path = result.file("timeline.parquet")
    row_noun = "stage" if is_pipeline else "worker"
    spans = None if timeline_path is None else spans_chart(timeline_path, row_noun)
    if spans is None:
        missing.append("a timeline")
    else:
        charts[f"r{number}-spans"] = spans
        title = "The schedules" if is_pipeline else "A round"
        section["spans"] = {"id": f"r{number}-spans", "left": spans["left"], "title": title}

    ledger = result.file("ledger.parquet")
    if ledger is None:
        missing.append("a ledger of collectives")
    collectives = None if ledger is None else collectives_chart(ledger, names)
    if collectives is not None:
        charts[f"r{number}-placement"] = collectives
        section["placement"] = f"r{number}-placement"

    if missing:
        section["missing"] = f"Not in this result: {', '.join(missing)}."
    return section


def _file_text(name: str) -> str:
    """Return the text of a file beside this module."""
    return (FOLDER / name).read_text(encoding="utf-8").strip()


def drawn_table(table: Group) -> dict[str, Any]:
    """Return what a command prints as the variables of the page's template.

    Returns:
        For a table its ``title``, ``headings``, ``rows``, ``notes``, and in ``left`` the indices of the columns of
        text; for anything else, such as a line or a drawing, its ``text`` and an empty ``title``.
    """
    if not isinstance(table, RowsTable):
        return {"title": "", "text": as_text(table).strip("\n")}
    content: dict[str, Any] = {"title": table.title, "headings": [], "rows": [], "left": (), "notes": []}
    for part in table.renderables:
        if isinstance(part, Sheet):
            rows = [list(row) for row in part.cells]
            content |= {"headings": list(part.headings), "rows": rows, "left": tuple(part.text_columns)}
        elif isinstance(part, Constrain) and isinstance(part.renderable, Text):
            # A page has no options, so that notes about them are left out.
            about_options = ("More: --columns", "All fields: syncline")
            lines = part.renderable.plain.split("\n")
            content["notes"] += [line for line in lines if line and not line.startswith(about_options)]
    return content
