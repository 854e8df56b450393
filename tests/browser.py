"""Debian's Chromium for tests of pages; where it is not, they are skipped and say so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox, which root has none of, and with no more processes than a test needs.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions")
WAIT_S = 60


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    where = next(filter(None, map(shutil.which, NAMES)), None)
    if where is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=where, args=[*OPTIONS], timeout=1000 * WAIT_S)
        yield opened
        opened.close()


@contextmanager
def visits(
    browser: Any, ready: str, own: Callable[[str], bool], kinds: tuple[str, ...] | None = None
) -> Iterator[Callable[..., Any]]:
    """``at(address, width, **options)`` opens a page and waits for what ``ready`` selects.

    At the end nothing may have been said to the console (of ``kinds``, or at all), and nothing have been asked for that
    is not of one's ``own`` addresses.
    """
    said: list[str] = []
    contexts: list[Any] = []

    def at(address: str, width: int, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * WAIT_S)
        page.on("console", lambda one: said.append(one.text) if kinds is None or one.type in kinds else None)
        page.on("pageerror", lambda one: said.append(str(one)))
        page.on("request", lambda one: None if own(one.url) else said.append(one.url))
        page.goto(address)
        page.wait_for_selector(ready)
        return page

    yield at
    for context in contexts:
        context.close()
    assert said == []
