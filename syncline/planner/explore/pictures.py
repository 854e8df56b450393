"""Pictures as SVG: drawn in milliseconds, sharp at any size, with the colours of a page or their own."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from syncline.columns import share_text
from syncline.planner.explore.answers import Curves
from syncline.planner.explore.settings import BASELINE
from syncline.planner.pages import DARK, LIGHT
from syncline.planner.projection.sync_round import ActivitySpan, MethodRound
from syncline.questions.explore import OFFERED
from syncline.units import format_bandwidth, format_seconds

HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a3300")
"""Okabe and Ito's colours without yellow and black, which are visible on a white and on a dark ground."""

DASHES = ("", "7 3", "2 3")

NARROW, LABEL_HEIGHT = 560, 16.0
"""Pixels of width below which a picture has fewer ticks and no names beside lines; pixels of height of such a name."""

STYLE = """
.plot text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--quiet)}
.plot .strong{fill:var(--ink);font-weight:600}.plot .ink{fill:var(--ink)}
.plot .rule{stroke:var(--rule);stroke-width:1}.plot .axis{stroke:var(--quiet);stroke-width:1}
.plot .here{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3}
.plot .line{fill:none;stroke-width:2;stroke-linejoin:round}
.plot .leader{stroke:var(--rule);stroke-width:1;fill:none}
.plot .compute{fill:#0072b2}.plot .network{fill:#e69f00}.plot .wait{fill:none;stroke:var(--wait);stroke-width:1}
"""


def style_of(method: str) -> tuple[str, str]:
    """Return a method's colour and dashes, the same in every picture; the baseline has the ink's colour."""
    if method == BASELINE:
        return "var(--ink)", ""
    prefixes = [name for name in OFFERED if method == name or method.startswith(f"{name}-")]
    if prefixes:
        style_index = OFFERED.index(max(prefixes, key=len))
    else:  # the name alone decides the style, which follows those of the offered methods
        style_index = len(OFFERED) + sum(map(ord, method)) % len(HUES)
    dash_index, hue_index = divmod(style_index, len(HUES))
    return HUES[hue_index], DASHES[dash_index % len(DASHES)]


def swatch(method: str) -> str:
    """Return a small SVG image of the color and dashes with which the pictures draw a method, for the legend."""
    color, dash = style_of(method)
    return (
        '<svg class="swatch" width="22" height="10" viewBox="0 0 22 10" aria-hidden="true">'
        f'<line x1="1" y1="5" x2="21" y2="5" style="stroke:{color}" stroke-width="3" stroke-dasharray="{dash}"/></svg>'
    )


def _tick(x: float, axis: float, text: str, anchor: str) -> list[str]:
    """Return a tick of the horizontal axis, with its text below, as SVG elements."""
    line = f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{axis}" y2="{axis + 4}"/>'
    return [line, f'<text x="{x:.1f}" y="{axis + 17}" text-anchor="{anchor}">{text}</text>']


def bandwidth_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks between two bandwidths, at powers of ten of bits per second, each with its text.

    Ticks and bandwidths are in bytes per second.
    """
    first = np.ceil(np.log10(8 * low) - 1e-9)  # an end that is a power of ten stays in spite of rounding
    last = np.floor(np.log10(8 * high) + 1e-9)
    return [(10.0**power / 8, format_bandwidth(10.0**power / 8)) for power in np.arange(first, last + 1).tolist()]


def utilisation_picture(
    curves: Curves, bandwidth: float, current_shares: Mapping[str, float], width: int = 720, line: str = "a site's line"
) -> str:
    """Return an SVG with a curve for each method: the share of the time that computes, over the bandwidth of a line.

    A vertical line marks the settings' bandwidth.

    Args:
        bandwidth: the settings' bandwidth in bytes per second.
        current_shares: method -> the share at that bandwidth, for the methods to draw.
        width: width in pixels.
        line: the line in words.
    """
    narrow = width < NARROW
    # Pixels around the plot; in a broad picture the names of the lines are to the right of it.
    margin, right, top, bottom = 46, 14 if narrow else 178, 42, 44
    height = 276 if narrow else 356
    plot_width, plot_height = width - margin - right, height - top - bottom
    low, high = float(curves.bandwidths[0]), float(curves.bandwidths[-1])

    def x(rate: float) -> float:
        return margin + plot_width * float(np.log(rate / low) / np.log(high / low))

    def y(part: float) -> float:
        return top + plot_height * (1 - part)

    out = []
    for percent in (0, 25, 50, 75, 100):
        rule_y = y(percent / 100)
        out.append(f'<line class="rule" x1="{margin}" x2="{margin + plot_width}" y1="{rule_y:.1f}" y2="{rule_y:.1f}"/>')
        out.append(f'<text x="{margin - 7}" y="{rule_y + 4:.1f}" text-anchor="end">{percent}%</text>')
    ticks = bandwidth_ticks(low, high)
    for index, (rate, text) in enumerate(ticks):
        anchor = "start" if index == 0 else "end" if index == len(ticks) - 1 and narrow else "middle"
        label = text.replace("bit/s", "").strip() if narrow else text
        out += _tick(x(rate), top + plot_height, label, anchor)
    unit = ", bit/s" if narrow else ""
    name = f"bandwidth of {line}{unit}"
    out.append(f'<text x="{margin + plot_width / 2:.0f}" y="{height - 6}" text-anchor="middle">{name}</text>')
    out.append('<text x="2" y="13">share of the time that computes</text>')
    marked = min(max(bandwidth, low), high)
    label = f"now {format_bandwidth(bandwidth)}"
    anchor = "end" if x(marked) > margin + plot_width - 60 else "start" if x(marked) < margin + 60 else "middle"
    out.append(
        f'<line class="here" x1="{x(marked):.1f}" x2="{x(marked):.1f}" y1="{top - 4}" y2="{top + plot_height}"/>'
    )
    position = f'x="{x(marked):.1f}" y="{top - 9}" text-anchor="{anchor}"'
    out.append(f'<text class="strong" {position}>{escape(label)}</text>')
    ends = []
    for method, value in current_shares.items():
        shares = curves.computing(method)
        color, dash = style_of(method)
        points = " ".join(f"{x(rate):.1f},{y(part):.1f}" for rate, part in zip(curves.bandwidths, shares, strict=True))
        look = f'style="stroke:{color}" stroke-dasharray="{dash}"'
        title = f"<title>{escape(method)}</title>"
        out.append(f'<polyline class="line" {look} points="{points}">{title}</polyline>')
        out.append(
            f'<circle cx="{x(marked):.1f}" cy="{y(value):.1f}" r="4" style="fill:{color};stroke:var(--ground)"/>'
        )
        ends.append(y(float(shares[-1])))
    if not narrow:
        out += _end_labels(ends, current_shares, margin + plot_width, top, top + plot_height)
    description = f"Share of the time that computes, over bandwidth; at {format_bandwidth(bandwidth)}: " + ", ".join(
        f"{name} {share_text(value)}" for name, value in current_shares.items()
    )
    return _svg(width, height, inside=out, description=description)


def _end_labels(
    ends: Sequence[float], current_shares: Mapping[str, float], right: float, top: float, bottom: float
) -> list[str]:
    """Return the names beside the ends of the lines, and a thin line from each end to its name, as SVG elements.

    Args:
        ends: height in pixels of the end of each line.
        current_shares: method -> its share at the settings' bandwidth, in the order of the lines.
        right: pixels from the left to the end of the lines.
        top, bottom: heights in pixels between which the names lie.
    """
    from syncline.analysis.axes import spread_positions  # lazy import: matplotlib is slow to load

    # Order the names by their values, each as near to the end of its line as this order allows.
    by_value = sorted(current_shares, key=lambda name: -current_shares[name])
    label_heights = dict(zip(by_value, spread_positions(sorted(ends), LABEL_HEIGHT, top + 2, bottom), strict=True))
    out = []  # from left to right: the thin line, a dot in the method's colour, the name
    for method, end in zip(current_shares, ends, strict=True):
        height, (color, _) = label_heights[method], style_of(method)
        out.append(f'<path class="leader" d="M{right + 1:.0f} {end:.1f} L{right + 16:.0f} {height:.1f}"/>')
        out.append(f'<circle cx="{right + 21:.0f}" cy="{height:.1f}" r="3.5" style="fill:{color}"/>')
        out.append(
            f'<text class="ink" x="{right + 29:.0f}" y="{height + 4:.1f}">{escape(_short(method))} '
            f'<tspan class="strong">{share_text(current_shares[method])}</tspan></text>'
        )
    return out


def _short(name: str, letters: int = 17) -> str:
    """Return a name, cut to a number of letters."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


class RoundRow(NamedTuple):
    """A method's row in a picture of time, with the round that it repeats."""

    method: str
    round: MethodRound


MOST_ROUNDS = 400
"""Limit on the rounds of a method that are drawn one after another."""
INVISIBLE_GAP = 0.6
"""Gap in pixels below which two spans are drawn as one."""


def round_picture(rows: Sequence[RoundRow], width: int = 720) -> str:
    """Return an SVG of one round of the first method, and of the other methods during this time.

    Each method has a row for computing and, below it, one for the network.
    """
    window, steps = rows[0].round.seconds, rows[0].round.steps
    # Pixels at the left and at the right, of the legend, of a method with its heading, and of the axis with its ticks.
    margin, top, row_height, heading_height, axis_height = 8, 24, 66, 18, 30
    plot_width = width - 2 * margin
    height = top + row_height * len(rows) + axis_height
    out = _legend(margin)
    for index, row in enumerate(rows):
        base = top + row_height * index + heading_height
        steps_in_window = window / row.round.seconds * row.round.steps if row.round.seconds else 0
        description = _steps_text(steps_in_window)
        if index == 0:  # the window is this method's round
            description = f"{steps:,} {'step' if steps == 1 else 'steps'}"
        out.append(
            f'<text x="{margin}" y="{base - 5}"><tspan class="strong">{escape(row.method)}</tspan> {description}, '
            f"computes {share_text(_computing_share(row.round))}</text>"
        )
        out += _spans(row.round, window, margin, plot_width, base)
    axis = top + row_height * len(rows) + 2
    scale = plot_width / window if window else 0.0
    out.append(f'<line class="axis" x1="{margin}" x2="{margin + plot_width}" y1="{axis}" y2="{axis}"/>')
    for seconds, text in _time_ticks(window, 3 if width < NARROW else 6):
        x = margin + scale * seconds
        is_at_end = x > margin + plot_width - 24  # pixels in which half of a centred text may not fit
        out += _tick(x, axis, text, anchor="start" if seconds == 0 else "end" if is_at_end else "middle")
    names = ", ".join(f"{row.method} computes {share_text(_computing_share(row.round))}" for row in rows)
    return _svg(width, height, inside=out, description=f"{format_seconds(window)} of training: {names}")


_UNITS = (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))


def _time_ticks(window: float, limit: int) -> list[tuple[float, str]]:
    """Return round times from 0 to a window's end, with their unit."""
    shorter_units = [(unit, unit_s) for unit, unit_s in _UNITS if window >= 2 * unit_s]
    unit, unit_s = shorter_units[-1] if shorter_units else _UNITS[0]
    window_in_units = window / unit_s
    # The least of 1, 2 and 5 times a power of ten with which the window has few enough ticks.
    spacings = [mantissa * 10.0**power for power in range(-2, 7) for mantissa in (1, 2, 5)]
    spacing = next((spacing for spacing in spacings if window_in_units / spacing <= limit), window_in_units)
    count = int(window_in_units / spacing + 1e-9)  # a tick at the end stays in spite of rounding
    return [(index * spacing * unit_s, f"{index * spacing:g} {unit}" if index else "0") for index in range(count + 1)]


def _steps_text(steps: float) -> str:
    """Return a number of steps that may be a fraction: ``2.5 steps``."""
    if steps < 1:
        return f"{steps:.2g} of a step"
    return f"{steps:.1f} steps" if steps < 9.95 else f"{steps:,.0f} steps"  # 9.95 would be printed as 10.0


def _computing_share(method_round: MethodRound) -> float:
    """Return the share of a round in which a worker does not wait."""
    seconds = method_round.seconds
    waits = [span for span in method_round.spans if span.kind == "wait"]
    waits_s = sum(min(span.end_s, seconds) - max(span.start_s, 0.0) for span in waits)
    return 1 - waits_s / seconds if seconds else 1.0


def _legend(x: int) -> list[str]:
    """Return the legend of a round as SVG elements; ``x`` is its left end in pixels."""
    out = []
    for kind, text in (("compute", "computes"), ("wait", "waits"), ("network", "on the network")):
        out.append(_bar(kind, x, y=5, width=12, height=10))
        out.append(f'<text x="{x + 17}" y="14">{text}</text>')
        x += 32 + 7 * len(text)  # a letter is about 7 pixels wide
    return out


def _bar(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    """Return a span as an SVG element, with a tooltip: a bar wide enough to see, or a thin line for waiting."""
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    if kind == "wait":
        middle = y + height / 2
        return (
            f'<g><rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="transparent">{tooltip}</rect>'
            f'<path class="wait" d="M{x:.2f} {middle} h{width:.2f}"/></g>'
        )
    return f'<rect class="{kind}" x="{x:.2f}" y="{y}" width="{max(width, 0.7):.2f}" height="{height}">{tooltip}</rect>'


def _spans(method_round: MethodRound, window: float, margin: float, plot_width: float, base: float) -> list[str]:
    """Return the spans of a method's rounds as SVG elements, as many rounds as fit into a window.

    Args:
        window: seconds that the picture shows.
        margin: pixels to the left of the spans.
        plot_width: pixels of the window.
        base: pixels from the top to the spans of computing.
    """
    out = []
    seconds, scale = method_round.seconds, plot_width / window if window else 0.0
    rounds = min(int(np.ceil(window / seconds - 1e-9)), MOST_ROUNDS) if seconds else 0  # 1e-9: rounding errors
    # The network is a narrower row, 3 pixels below computing and waiting.
    for kind, y, height in (("compute", base, 22.0), ("wait", base, 22.0), ("network", base + 22 + 3, 12.0)):
        spans = [span for span in method_round.spans if span.kind == kind]
        for begin, end, label in _merged_spans(_spans_of_rounds(spans, seconds, rounds, window, scale)):
            title = f"{label or kind}: {format_seconds((end - begin) / scale)}"
            out.append(_bar(kind, margin + begin, y, width=end - begin, height=height, title=title))
    if seconds * MOST_ROUNDS < window:  # the rounds that are drawn end before the picture does
        x = margin + scale * seconds * MOST_ROUNDS + 6
        out.append(f'<text x="{x:.1f}" y="{base + 16}">… and so on</text>')
    return out


def _spans_of_rounds(
    spans: Sequence[ActivitySpan], seconds: float, rounds: int, window: float, scale: float
) -> Iterable[tuple[float, float, str]]:
    """Yield the spans of one round once per round, as begin and end in pixels, and label; cut at the window's end.

    Args:
        window: seconds that the picture shows.
        scale: pixels per second.
    """
    for index in range(rounds):
        for span in spans:
            begin = min(max(span.start_s + index * seconds, 0.0), window)
            end = min(max(span.end_s + index * seconds, 0.0), window)
            if end > begin:
                yield begin * scale, end * scale, span.label


def _merged_spans(spans: Iterable[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Return begin, end and label of spans, merged where the gap between two is invisible."""
    merged_spans: list[tuple[float, float, str]] = []
    for begin, end, label in sorted(spans):
        if merged_spans:
            previous_begin, previous_end, previous_label = merged_spans[-1]
            if begin - previous_end < INVISIBLE_GAP:
                # Parts of one message have labels such as "gradient 1/4"; together they keep the first word.
                common_label = label if label == previous_label else previous_label.split(" ")[0]
                merged_spans[-1] = previous_begin, max(previous_end, end), common_label
                continue
        merged_spans.append((begin, end, label))
    return merged_spans


def _svg(width: int, height: int, inside: Sequence[str], description: str) -> str:
    """Return elements as an SVG of a size in pixels, with a description for screen readers."""
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(description)}">{"".join(inside)}</svg>'
    )


def interval_picture(low: float, middle: float, high: float, ends: tuple[float, float], method: str) -> str:
    """Return an SVG of a time between its bounds, on a logarithmic line that all rows share.

    Args:
        low, middle, high: the time in seconds, with its bounds.
        ends: shortest and longest time of all rows.
        method: the method, which decides the colour.
    """
    width, height, line_y = 150, 18, 9

    def x(value: float) -> float:
        lowest, highest = ends
        if not 0 < lowest < highest:
            return width / 2
        # The round ends of the bar and the dot need 6 pixels on each side.
        return 6 + (width - 12) * float(np.log(value / lowest) / np.log(highest / lowest))

    color, _ = style_of(method)
    return (
        f'<svg class="interval" viewBox="0 0 {width} {height}" width="{width}" height="{height}" aria-hidden="true">'
        f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{line_y}" y2="{line_y}" style="stroke:{color}" '
        f'stroke-width="5" stroke-opacity="0.35" stroke-linecap="round"/>'
        f'<circle cx="{x(middle):.1f}" cy="{line_y}" r="4.5" style="fill:{color}"/></svg>'
    )


LETTERS = 78
"""Letters per line of the title of a separate picture."""


def standalone_svg(pictures: Sequence[tuple[str, str]], title: str, lines: Sequence[str], dark: bool = False) -> str:
    """Return an SVG file with all pictures, one above the other, a title, and colours of its own."""
    palette = DARK | {"wait": "#77828d"} if dark else LIGHT | {"wait": "#9aa4ae"}
    colors = ";".join(f"--{name}:{value}" for name, value in palette.items())
    # Pixels from a line to the next: of the title, of the text; from a picture to its neighbours' headings.
    title_line, text_line, above_heading, below_heading = 22, 20, 34, 12
    width, y, parts = 760, 34.0, []  # y: pixels from the top to the next line of text
    for line in textwrap.wrap(title, LETTERS, break_on_hyphens=False):
        parts.append(f'<text class="strong" x="20" y="{y}" style="font-size:16px">{escape(line)}</text>')
        y += title_line
    for sentence in lines:
        for line in textwrap.wrap(sentence, LETTERS * 4 // 3):  # letters of 12 pixels; `LETTERS` is for 16
            parts.append(f'<text x="20" y="{y}">{escape(line)}</text>')
            y += text_line
    y -= text_line  # back to the last line
    for heading, picture in pictures:
        y += above_heading
        parts.append(f'<text class="strong" x="20" y="{y}" style="font-size:14px">{escape(heading)}</text>')
        width_and_height = re.search(r'width="(\d+)" height="(\d+)"', picture)
        assert width_and_height is not None
        y += below_heading
        parts.append(picture.replace("<svg ", f'<svg x="20" y="{y}" ', 1))
        y += float(width_and_height[2])
    height = int(y + 20)
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="{colors}"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" style="fill:var(--ground)"/>{"".join(parts)}</svg>'
    )
