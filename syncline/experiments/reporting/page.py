"""One page of results: a file without anything to load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from syncline.errors import SpecError
from syncline.experiments.plain import plain
from syncline.experiments.reporting.drawn import drawn_table
from syncline.experiments.reporting.origin import origin_of
from syncline.experiments.reporting.placement import placement_chart
from syncline.experiments.reporting.reported import Reported
from syncline.experiments.reporting.series import loss_lines, named_lines, swatches
from syncline.experiments.reporting.shares import ranges_of, time_shares
from syncline.experiments.reporting.spans import spans_chart
from syncline.experiments.reporting.themes import sheet
from syncline.experiments.reporting.warned import caveats_of, warnings_of
from syncline.experiments.reporting.words import summary_of_result
from syncline.files import as_written, whole_file
from syncline.version import __version__

GENERATOR = "syncline report"
"""What a page says that made it: a file that does not is not replaced."""

SCRIPTS = ("scales.js", "plot.js", "lines.js", "spans.js", "placement.js", "page.js")
"""In the order in which they stand in the page."""

HERE = Path(__file__).parent


def report_page(results: Sequence[Reported], title: str = "") -> str:
    """The page of one result or several, as HTML.

    Args:
        results: at least one.
        title: above all of them; by default made of theirs.

    Raises:
        SynclineError: a folder is not as it was written.
    """
    lines: dict[str, None] = {}
    for one in results:
        with as_written(_where(one)):
            lines |= dict.fromkeys(named_lines(one))
    styles = swatches(lines)
    names = [style["name"] for style in styles]
    charts: dict[str, Any] = {}
    sections = []
    for number, one in enumerate(results, start=1):
        with as_written(_where(one)):
            sections.append(_section(number, one, names, charts))
    environment = Environment(
        loader=PackageLoader("syncline.experiments.reporting", "."),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html").render(
        title=title or _title(results),
        generator=f"{GENERATOR} {__version__}",
        style=Markup(sheet(styles) + _read("report.css")),
        script=Markup("(()=>{'use strict';\n" + "\n".join(map(_read, SCRIPTS)) + "\n})()"),
        data=in_a_script({"styles": [{"name": one["name"], "dash": one["dash"]} for one in styles], "charts": charts}),
        sections=sections,
    )


def write_report(html: str, path: Path) -> Path:
    """Write a page; one that is there is replaced, another file never.

    Raises:
        SpecError: there is a file that is no such page, or it cannot be written.
    """
    try:
        if path.is_file() and path.stat().st_size:
            with path.open(encoding="utf-8", errors="replace") as there:
                if f'content="{GENERATOR}' not in there.read(2000):
                    raise SpecError("--out", str(path), "a new file, or a report, which is replaced")
        with whole_file(path) as working:
            working.write_text(html, encoding="utf-8")
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    return path


def in_a_script(value: Any) -> Markup:
    """JSON that can stand in a script element: nothing in it ends that, or begins a comment.

    >>> print(in_a_script({"name": "</script>"}))
    {"name":"\\u003c/script\\u003e"}
    """
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _where(one: Reported) -> Path:
    return one.folder if one.folder is not None else Path(one.title)


def _section(number: int, one: Reported, names: Sequence[str], charts: dict[str, Any]) -> dict[str, Any]:
    own = f"r{number}"

    def placed(name: str, chart: dict[str, Any] | None) -> str:
        """What the page calls a chart; nothing of none."""
        if chart is None:
            return ""
        charts[f"{own}-{name}"] = chart
        return f"{own}-{name}"

    lines, note = loss_lines(one, names)
    timeline, ledger = one.file("timeline.parquet"), one.file("ledger.parquet")
    stages = any("makespan_s" in row for row in one.rows)
    spans = spans_chart(timeline, "stage" if stages else "worker") if timeline is not None else None
    drawn = {
        "losses": lines is not None, "timeline": spans is not None,
        "ledger": ledger is not None and not stages,
    }  # fmt: skip
    return {
        "id": own,
        "title": one.title,
        "named": "schedule" if stages else "comparison" if one.command == "replicate" else "method",
        "words": summary_of_result(one),
        "tables": [drawn_table(table) for table in one.tables],
        "warnings": warnings_of(one),
        "findings": one.findings,
        "caveats": caveats_of(one),
        "losses": lines
        and {
            "id": placed("losses", lines), "seeds": max(each["seeds"] for each in lines["series"]), "note": note,
            "label": lines["label"],
        },
        "shares": None if one.command == "sweep" else time_shares(one.rows),
        "ranges": ranges_of(one.rows) if one.command != "sweep" else [],
        "spans": spans
        and {
            "id": placed("spans", spans), "left": spans["left"],
            "title": "The schedules" if stages else "A round",
        },
        "placement": placed("placement", placement_chart(ledger, names)) if ledger is not None else "",
        "missing": _missing(one, drawn),
        "origin": origin_of(one),
    }  # fmt: skip


def _missing(one: Reported, drawn: Mapping[str, bool]) -> str:
    """What a result of this kind does not have, for those who look for it."""
    kinds = {"losses": "losses over the steps", "timeline": "a timeline", "ledger": "a ledger of collectives"}
    lacking = [kinds[name] for name, there in drawn.items() if not there]
    return f"Not in this result: {', '.join(lacking)}." if lacking else ""


def _title(results: Sequence[Reported]) -> str:
    titles = [one.title for one in results]
    return titles[0] if len(titles) == 1 else f"{len(titles)} results: {', '.join(titles)}"


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()
