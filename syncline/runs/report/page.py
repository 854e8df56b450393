"""One page of results: a file that loads nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from syncline.errors import SpecError
from syncline.files import atomic_path, refuse_changed_files
from syncline.runs.folders.json_values import plain
from syncline.runs.report.cells import drawn_table
from syncline.runs.report.placement import placement_chart
from syncline.runs.report.provenance import provenance_of
from syncline.runs.report.reported import Reported, titled
from syncline.runs.report.series import loss_lines, named_lines, swatches
from syncline.runs.report.shares import ranges_of, time_shares
from syncline.runs.report.spans import spans_chart
from syncline.runs.report.themes import sheet
from syncline.runs.report.warnings import caveats_of, warnings_of
from syncline.runs.report.words import summary_of_result
from syncline.version import __version__

GENERATOR = "syncline report"
"""The generator that a page names; a file that does not name it is not replaced."""

SCRIPTS = ("scales.js", "plot.js", "lines.js", "spans.js", "placement.js", "page.js")
"""Scripts in their order in the page."""

HERE = Path(__file__).parent


def report_page(results: Sequence[Reported], title: str = "") -> str:
    """Return the page of one result or several, as HTML.

    Args:
        results: at least one result.
        title: title of the page; by default made of the results' titles.

    Raises:
        SynclineError: a folder was changed after it was written.
    """
    results = titled(results)
    lines: dict[str, None] = {}
    for result in results:
        with refuse_changed_files(_where(result)):
            lines |= dict.fromkeys(named_lines(result))
    styles = swatches(lines)
    names = [style["name"] for style in styles]
    charts: dict[str, Any] = {}
    sections = []
    for number, result in enumerate(results, start=1):
        with refuse_changed_files(_where(result)):
            sections.append(_section(number, result, names, charts))
    environment = Environment(
        loader=PackageLoader("syncline.runs.report", "."),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html").render(
        title=title or _title(results),
        generator=f"{GENERATOR} {__version__}",
        style=Markup(sheet(styles) + _read("report.css")),
        script=Markup("(()=>{'use strict';\n" + "\n".join(map(_read, SCRIPTS)) + "\n})()"),
        data=in_a_script(
            {"styles": [{"name": style["name"], "dash": style["dash"]} for style in styles], "charts": charts}
        ),
        sections=sections,
    )


def write_report(html: str, path: Path) -> Path:
    """Write a page; an existing page is replaced, any other file is not.

    Raises:
        SpecError: the path has another file, or it cannot be written.
    """
    try:
        if path.is_file() and path.stat().st_size:
            with path.open(encoding="utf-8", errors="replace") as existing:
                if f'content="{GENERATOR}' not in existing.read(2000):
                    raise SpecError("--out", str(path), "a new file, or a report, which is replaced")
        with atomic_path(path) as working:
            working.write_text(html, encoding="utf-8")
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    return path


def in_a_script(value: Any) -> Markup:
    """Return a value as JSON for a script element: nothing in it ends the element or begins a comment.

    >>> print(in_a_script({"name": "</script>"}))
    {"name":"\\u003c/script\\u003e"}
    """
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _where(result: Reported) -> Path:
    return result.folder if result.folder is not None else Path(result.title)


def _section(number: int, result: Reported, names: Sequence[str], charts: dict[str, Any]) -> dict[str, Any]:
    section_id = f"r{number}"

    def placed(name: str, chart: dict[str, Any] | None) -> str:
        """Store a chart, and return its id on the page; empty without a chart."""
        if chart is None:
            return ""
        charts[f"{section_id}-{name}"] = chart
        return f"{section_id}-{name}"

    lines, note = loss_lines(result, names)
    timeline, ledger = result.file("timeline.parquet"), result.file("ledger.parquet")
    stages = any("makespan_s" in row for row in result.rows)
    spans = spans_chart(timeline, "stage" if stages else "worker") if timeline is not None else None
    drawn = {
        "losses": lines is not None, "timeline": spans is not None,
        "ledger": ledger is not None and not stages,
    }  # fmt: skip
    return {
        "id": section_id,
        "title": result.title,
        "named": "schedule" if stages else "comparison" if result.command == "replicate" else "method",
        "words": summary_of_result(result),
        "tables": [drawn_table(table) for table in result.tables],
        "warnings": warnings_of(result),
        "findings": result.findings,
        "caveats": caveats_of(result),
        "losses": lines
        and {
            "id": placed("losses", lines), "seeds": max(line["seeds"] for line in lines["series"]), "note": note,
            "label": lines["label"],
        },
        "shares": None if result.command == "sweep" else time_shares(result.rows),
        "ranges": ranges_of(result.rows) if result.command != "sweep" else [],
        "spans": spans
        and {
            "id": placed("spans", spans), "left": spans["left"],
            "title": "The schedules" if stages else "A round",
        },
        "placement": placed("placement", placement_chart(ledger, names)) if ledger is not None else "",
        "missing": _missing(result, drawn),
        "origin": provenance_of(result),
    }  # fmt: skip


def _missing(result: Reported, drawn: Mapping[str, bool]) -> str:
    """Return a sentence about the parts that a result of this kind does not have."""
    kinds = {"losses": "losses over the steps", "timeline": "a timeline", "ledger": "a ledger of collectives"}
    lacking = [kinds[name] for name, is_drawn in drawn.items() if not is_drawn]
    return f"Not in this result: {', '.join(lacking)}." if lacking else ""


def _title(results: Sequence[Reported]) -> str:
    titles = [result.title for result in results]
    return titles[0] if len(titles) == 1 else f"{len(titles)} results: {', '.join(titles)}"


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()
