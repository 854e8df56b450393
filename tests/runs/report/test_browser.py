"""The page in a browser, offline: it says nothing to the console, its charts respond, axe finds nothing."""

from __future__ import annotations

from importlib import resources

import pytest

import syncline as sl
from tests.browser import chromium, visits
from tests.runs.report.kept import HARMFUL, compared, ran

PHONE, SCREEN, WIDE = 375, 1024, 1920


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return sl.report([compared(), ran()], tmp_path_factory.mktemp("report") / "page.html").path


@pytest.fixture(scope="module")
def visit(browser, file):
    """``visit(width, theme)``: the page without a network; what it says to the console or asks for is a failure."""
    with visits(browser, ".area svg polyline", own=lambda url: url.startswith(("file:", "data:"))) as at:
        yield lambda width=SCREEN, theme="light": at(file.as_uri(), width, color_scheme=theme, offline=True)


@pytest.fixture(scope="module")
def page(visit):
    return visit()


def lines(page, chart: str = "r1-losses") -> list[str]:
    return page.eval_on_selector_all(f"[data-chart={chart}] .plot:first-child [data-line]",
                                     "all => all.map(one => one.dataset.line)")  # fmt: skip


def test_charts_are_there_and_a_name_takes_its_line_away(page):
    assert lines(page) == ["ddp-adam", HARMFUL] and page.title() != "taken"
    button = page.locator("[data-chart=r1-losses] .legend button", has_text="ddp-adam")
    button.focus()
    page.keyboard.press("Space")
    assert lines(page) == [HARMFUL] and button.get_attribute("aria-pressed") == "false"
    button.click()
    assert lines(page) == ["ddp-adam", HARMFUL]


def test_keys_read_and_zoom_a_chart(page):
    area = page.locator("[data-chart=r1-losses] .area").first
    area.focus()
    page.keyboard.press("End")
    status = page.locator("[data-chart=r1-losses] .plot").first.locator("[role=status]")
    rows = {row["method"]: row["loss"] for row in compared().rows}
    assert status.inner_text().startswith("40: ") and f"ddp-adam {rows['ddp-adam']:.4g}"[:12] in status.inner_text()
    page.keyboard.press("+")
    assert status.inner_text() == "20 to 40"
    page.keyboard.press("0")
    assert status.inner_text() == "0 to 40"
    page.keyboard.press("Escape")


def test_a_pointer_reads_a_chart_and_drags_a_zoom(page):
    plot = page.locator("[data-chart=r1-losses] .plot").first
    box = plot.locator(".area").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    assert "ddp-adam" in plot.locator(".told").inner_text()
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1])
    page.mouse.up()
    low, high = plot.locator("[role=status]").inner_text().split(" to ")
    assert 15 <= int(low) < int(high) <= 40
    plot.locator("button", has_text="⤢").click()
    assert plot.locator("[role=status]").inner_text() == "0 to 40"


@pytest.mark.parametrize(("width", "theme"), [(PHONE, "dark"), (SCREEN, "light"), (WIDE, "dark")])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(visit, width, theme):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page = visit(width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate((resources.files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(found => found.violations.map(one => [one.id, one.nodes.map(n => n.html)]))")
    assert found == []


def test_the_button_turns_the_theme_and_paper_is_white(page):
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.click("#theme")
    assert page.evaluate(ground) == before


def test_controls_are_reached_by_tab_one_after_another(page):
    focusable = "button, select, summary, a, .area, .wide"
    assert page.eval_on_selector_all(focusable, "all => all.filter(one => one.tabIndex < 0).length") == 0
    page.locator("[data-chart=r1-losses] .legend button").first.focus()
    reached = []
    for _ in range(6):
        reached.append(page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText.trim()"))
        page.keyboard.press("Tab")
    assert reached[:5] == [
        "ddp-adam",
        HARMFUL.strip(),
        "Zoom in: Steps",
        "Zoom out: Steps",
        "Show all: Steps",
    ]
    assert reached[5].startswith("loss of the workers' mean against steps")


def test_a_round_is_read_event_by_event_and_another_is_chosen(page):
    chart = page.locator("[data-chart=r1-spans]")
    shown = chart.locator("h4").inner_text()
    assert shown.endswith("on dsl") and not shown.startswith("ddp-adam")
    chart.locator(".area").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "worker 0: " in chart.locator("[role=status]").inner_text()
    page.keyboard.press("+")
    low, high = chart.locator("[role=status]").inner_text().split(" to ")
    assert low != high
    chart.locator("select").select_option("0")
    chart.locator("[data-span]").nth(8).wait_for(state="attached")  # it is drawn with the next frame
    assert chart.locator("h4").inner_text() == "ddp-adam on 10gbe"


def test_what_is_sent_is_read_step_by_step(page):
    chart = page.locator("[data-chart=r1-placement]")
    chart.locator(".area").focus()
    page.keyboard.press("Home")
    said = chart.locator("[role=status]").inner_text()
    assert said.startswith("step 0. ddp-adam: 8 B, all_reduce") and said.endswith("nothing")


def test_on_paper_all_is_open_and_nothing_is_cut(page):
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.eval_on_selector_all("details:not([open])", "all => all.length") == 0
    assert page.pdf(format="A4").startswith(b"%PDF")
