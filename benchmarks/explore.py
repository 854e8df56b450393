"""How long the page of ``syncline explore`` takes to answer a move; its picture for the docs.

python -m benchmarks.explore
python -m benchmarks.explore --picture docs/figures/explore.webp
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.command import cpu_s, parser_of, show
from syncline.planner.explore import answers, markup
from syncline.planner.explore.answers import curves, ranking_of, round_of, shown_method
from syncline.planner.explore.pictures import RoundRow, round_picture, utilisation_picture
from syncline.planner.explore.settings import BASELINE
from syncline.questions.explore import PageSettings

SETTINGS = {
    "one worker per site": PageSettings(model="gpt-160m", workers=1, sites=8, replica="worker"),
    "two sites of 32, a replica a worker": PageSettings(replica="worker", model="gpt-1.3b"),
    "two sites of 32, a replica a node": PageSettings(replica="node"),
    "two sites of 32, a replica a site": PageSettings(),
}
WIDTHS = (940, 640, 490, 330)


class Row(NamedTuple):
    """CPU seconds of the server for one move, median.

    Attributes:
        settings: what is moved.
        ranking_s: until ranking, words and round are there.
        curves_s: what curves and thresholds take beside, where they are not known.
        bandwidth_s: all of it for a move of the bandwidth, of which curves do not depend.
    """

    settings: str
    ranking_s: float
    curves_s: float
    bandwidth_s: float


def ranking(settings: PageSettings) -> None:
    """What is told first of a move."""
    found = ranking_of(settings)
    names = [shown_method(found), BASELINE]
    rows = [RoundRow(name, round_of(settings, name)) for name in names]
    answers.headline(found)
    markup.ranking_table(found)
    markup.figure([round_picture(rows, width) for width in WIDTHS])


def drawing(settings: PageSettings) -> None:
    """What is told after it."""
    found, over = ranking_of(settings), curves(settings)
    now = answers.computing_shares(found)
    markup.figure([utilisation_picture(over, settings.bandwidth, now, width) for width in WIDTHS])
    markup.render("threshold_table", answers.threshold_rows(found, over), BASELINE)


def measured(name: str, settings: PageSettings, moves: int) -> Row:
    """One row: moves of the latency, each new, and of the bandwidth."""
    ranking(settings)
    drawing(settings)
    first, then, known = [], [], []
    for number in range(moves):
        moved = replace(settings, latency=0.021 + 0.001 * number)
        first.append(cpu_s(partial(ranking, moved)))
        then.append(cpu_s(partial(drawing, moved)))
        faster = replace(settings, bandwidth=settings.bandwidth * (1.1 + number))
        known.append(cpu_s(partial(ranking, faster)) + cpu_s(partial(drawing, faster)))
    return Row(name, median(first), median(then), median(known))


def picture(file: Path) -> None:
    """The page as it opens, in Debian's Chromium."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "syncline.cli.application", "explore"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().split()[0]
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 1180})
            page.goto(address)
            page.wait_for_selector(".told td")
            page.screenshot(path=file.with_suffix(".png"))
            browser.close()
    finally:
        server.terminate()
        server.wait(10)
    Image.open(file.with_suffix(".png")).save(file, quality=82, method=6)
    file.with_suffix(".png").unlink()


def table(rows: Sequence[Row]) -> str:
    """The rows for people, in milliseconds."""
    lines = [f"{'CPU milliseconds, median of a move':<38} {'ranking':>8} {'curves':>8} {'bandwidth':>10}"]
    lines += [
        f"{row.settings:<38} {1e3 * row.ranking_s:8.0f} {1e3 * row.curves_s:8.0f} {1e3 * row.bandwidth_s:10.0f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, or draw."""
    parser = parser_of("benchmarks.explore", __doc__)
    parser.add_argument("--moves", type=int, default=9)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the page in place of measuring")
    given = parser.parse_args(arguments)
    if given.picture:
        picture(given.picture)
        return
    show([measured(name, settings, given.moves) for name, settings in SETTINGS.items()], table, given.json)


if __name__ == "__main__":
    main()
