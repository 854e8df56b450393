"""The page in a browser: what is moved, typed, pressed, sent to others. Skipped, with the reason, where none is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest

import syncline as sl
from syncline.errors import SpecError
from syncline.planner.explore.markup import advice_on
from syncline.planner.explore.settings import BY_NAME, from_query, to_query
from syncline.planner.explore.settings import explored_spec as asked_of
from syncline.questions.explore import PageSettings
from tests.browser import WAIT_S, chromium, visits

pytest.importorskip("nicegui", reason="the extra 'explore' is not installed")

ROOT = Path(__file__).parents[3]
QUICK = PageSettings(model="gpt-160m", workers=4, sites=2, replica="worker", inside="10gbe", batch=4096)


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The command in a process of its own, and the address that it tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", "syncline.cli.application", "explore", *arguments],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    watch = threading.Timer(WAIT_S, process.kill)
    watch.start()
    line = process.stderr.readline()
    watch.cancel()
    if not line.startswith("http://127.0.0.1:"):
        ended(process)
        pytest.fail(f"syncline explore says {line!r}")
    return process, line.split()[0]


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def address():
    process, told = started()
    yield told
    ended(process)


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture
def visit(browser, address):
    """``visit(settings, width=..., color_scheme=...)``: the page of a link, that says nothing to the console."""
    kinds = ("error", "warning")
    with visits(browser, ".told td", own=lambda url: not foreign(url, address), kinds=kinds) as at:

        def asked_for(settings: PageSettings | str, width: int = 1280, **options):
            query = settings if isinstance(settings, str) else to_query(settings)
            return at(f"{address}?{query}", width, **options)

        yield asked_for


def foreign(url: str, address: str) -> bool:
    """Whether something was fetched from elsewhere."""
    return not url.startswith((address, "data:", "blob:"))


def times(page) -> dict[str, float]:
    """The times of the ranking."""
    read = "rows => rows.map(row => [row.dataset.method, row.querySelector('[data-seconds]').dataset.seconds])"
    return {name: float(seconds) for name, seconds in page.eval_on_selector_all(".ranking tr[data-method]", read)}


def asked(page) -> PageSettings:
    """The settings of the page's address."""
    settings, problems = from_query(page.url.partition("?")[2])
    assert problems == []
    return settings


def until(page, name: str, value) -> PageSettings:
    """Waits until a setting has a value, in the address and in what is shown."""
    text = json.dumps(BY_NAME[name].write(value))
    page.wait_for_function(f"new URLSearchParams(location.search).get('{name}') === {text}")
    return asked(page)


def test_it_tells_what_the_command_line_tells(visit, command, tmp_path, address):
    page = visit(QUICK)
    with page.expect_download() as spec:
        page.click("text=Spec")
    file = tmp_path / "explored.yaml"
    spec.value.save_as(file)
    done = command("project", str(file), "--json")
    assert done.code == 0
    rows = {row["method"]: row["wall_clock_s"] for row in json.loads(done.out)["rows"]}
    assert times(page) == pytest.approx(rows, rel=1e-12) and len(rows) == 6
    with page.expect_download() as picture:
        page.click("text=Picture (SVG)")
    picture.value.save_as(tmp_path / "explored.svg")
    assert "<svg" in (tmp_path / "explored.svg").read_text() and "streaming-diloco" in page.inner_text("main")
    with page.expect_download() as picture:
        page.click("text=Picture (PNG)")
    picture.value.save_as(tmp_path / "explored.png")
    assert (tmp_path / "explored.png").read_bytes().startswith(b"\x89PNG")


def test_moves_by_hand_by_keys_and_typed_change_what_is_told_and_the_link(visit):
    page = visit(QUICK)
    before = times(page)
    page.focus("#bandwidth")
    page.keyboard.press("ArrowRight")
    until(page, "bandwidth", 1.5e8)
    assert page.get_attribute("#bandwidth", "aria-valuetext") == page.input_value("#bandwidth-text") == "1.2 Gbit/s"
    page.wait_for_function(f"document.querySelector('[data-seconds]').dataset.seconds != '{min(before.values())!r}'")
    after = times(page)
    assert all(after[name] < before[name] for name in before)
    page.fill("#latency-text", "3 ms")
    page.keyboard.press("Enter")
    until(page, "latency", 0.003)
    page.select_option("#model", "gpt-350m")
    until(page, "model", "gpt-350m")
    page.uncheck("input[value=demo]")
    page.wait_for_selector("tr[data-method=demo]", state="detached")
    page.click("button[data-method=mt-dao]")
    page.wait_for_function("document.body.innerText.includes('One round of mt-dao')")
    settings = until(page, "shown", "mt-dao")
    methods = ("diloco", "streaming-diloco", "mt-dao", "des-loc")
    assert settings == replace(QUICK, bandwidth=1.5e8, latency=0.003, model="gpt-350m", methods=methods, shown="mt-dao")
    rows = sl.project(asked_of(settings).fields).rows
    assert times(page) == {row["method"]: row["wall_clock_s"] for row in rows}


def test_plans_are_searched_on_demand_and_forgotten_when_the_cluster_moves(visit):
    settings = replace(QUICK, tokens=3.2e9, methods=())
    page = visit(settings)
    page.click("#advise")
    page.wait_for_selector(".plans [data-seconds]")
    read = "all => all.map(one => Number(one.dataset.seconds))"
    told = page.eval_on_selector_all(".plans [data-seconds]", read)
    found = advice_on(settings)
    known = {row["time_s"] for row in (*found.ranked, *found.loss_unknown)}
    assert told[0] == found.ranked[0]["time_s"] and set(told) <= known
    assert "syncline advise --model gpt-160m" in page.inner_text("pre")
    page.focus("#tokens")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#advise")


def test_all_controls_are_reached_by_tab_and_labelled(visit):
    page = visit(QUICK)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.id"))
    names = {"sites", "workers", "hardware", "inside", "bandwidth", "latency", "model", "replica", "batch", "tokens",
             "methods", "period", "compression", "copy", "png", "theme"}  # fmt: skip
    assert names <= reached
    unlabelled = "all => all.filter(one => !(one.labels.length || one.ariaLabel)).map(one => one.outerHTML)"
    assert page.eval_on_selector_all("#settings input, #settings select", unlabelled) == []


def test_a_link_restores_the_settings(visit):
    settings = PageSettings(model="gpt-350m", sites=3, workers=2, inside="infiniband", bandwidth=3.3e8, latency=0.0123,
                        methods=("diloco", "soap"), period=77, compression="bf16", replica="worker", batch=5000,
                        tokens=1.234e10, hardware="h100", shown="diloco")  # fmt: skip
    page = visit(settings)
    assert asked(page) == settings
    typed = {"bandwidth": "2.64 Gbit/s", "latency": "12.3 ms", "period": "77", "batch": "5,000", "tokens": "12.34 B"}
    assert {name: page.input_value(f"#{name}-text") for name in typed} == typed
    assert page.input_value("#compression") == "bf16" and page.is_checked("input[value=soap]")
    assert set(times(page)) == {"ddp-adam", "diloco", "soap"}


def test_what_a_link_cannot_say_is_told_on_the_page(visit, address):
    page = visit("bandwidth=fast&model=%3Cscript%3Ealert(1)%3C/script%3E&workers=8&sites=2&replica=worker")
    told = page.inner_text(".problems")
    assert "bandwidth: got 'fast'" in told and "<script>alert(1)</script>" in told
    page.fill("#latency-text", "never")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.problems').innerText.includes(\"latency: got 'never'\")")
    assert page.get_attribute("#latency-text", "aria-invalid") == "true"
    page.fill("#workers-text", "12")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.problems').innerText.includes('a multiple of 8')")


def test_a_telephone_scrolls_in_one_direction(visit):
    page = visit(QUICK, width=390, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.is_visible("#bandwidth")
    page.click("summary")
    page.wait_for_selector("#bandwidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_light_and_dark_follow_the_machine_and_the_switch(visit):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(QUICK, color_scheme="light"), visit(QUICK, color_scheme="dark")
    assert light.evaluate(ground) == "rgb(244, 246, 248)" and dark.evaluate(ground) == "rgb(13, 16, 19)"
    dark.click("#theme")
    assert dark.evaluate(ground) == "rgb(244, 246, 248)"
    dark.click("#theme")
    assert dark.evaluate(ground) == "rgb(13, 16, 19)"


def test_only_this_machine_is_served_and_files_refuse_in_a_line(address):
    def status(url: str, host: str | None = None) -> tuple[int, str]:
        request = urllib.request.Request(url, headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as told:
                return told.status, told.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    assert address.startswith("http://127.0.0.1:")
    assert status(address, "elsewhere.example")[0] == 400
    assert status(f"{address}spec.yaml?model=os:system")[0] == 400
    code, told = status(f"{address}picture.svg?workers=12&sites=2")
    assert code == 400 and told.count("\n") == 1 and "a multiple of 8" in told
    assert status(f"{address}picture.svg?{to_query(QUICK)}&theme=dark")[1].startswith("<svg")


def test_a_port_that_is_taken_is_refused_in_a_line():
    from syncline.planner.explore.server import bound_socket

    first = bound_socket(0)
    first.listen()
    with first, pytest.raises(SpecError, match="a port that is free"):
        bound_socket(first.getsockname()[1])
