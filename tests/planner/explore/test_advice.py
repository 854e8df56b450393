"""The plans of the page are those of ``syncline advise``."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from syncline.errors import SpecError
from syncline.planner.explore.markup import advice_on, advice_part, advise_line
from syncline.questions.explore import PageSettings

SETTINGS = PageSettings(model="gpt-160m", workers=2, sites=2, batch=8192, tokens=3.2e9, losses="extrapolated")


def test_the_command_that_is_told_says_the_same(command):
    words = shlex.split(advise_line(SETTINGS))
    assert words[0] == "syncline"
    done = command(*words[1:], "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == json.loads(json.dumps(advice_on(SETTINGS).record()["rows"]))


def test_what_advice_decides_by_itself_does_not_matter_to_it():
    other = replace(SETTINGS, methods=("soap",), period=77, replica="site", shown="soap", compression="bf16")
    assert advice_on(other) is advice_on(SETTINGS)


def test_all_lists_are_told():
    part = advice_part(SETTINGS, advice_on(SETTINGS))
    assert part.count("<h3>") >= 4 and "What decides" in part and "<pre" in part


def test_settings_that_cannot_be_asked_are_told_in_a_line():
    with pytest.raises(SpecError, match="a multiple of 8"):
        advice_on(PageSettings(workers=12))
