"""The page as text: what it holds, that its numbers are the rows', and that nothing of others is markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import syncline as sl
from syncline.analysis.curves import median_and_range
from syncline.errors import SpecError, SynclineError
from syncline.runs.report.page import json_for_script
from syncline.runs.training.results import read_curves
from tests.runs.report.kept import HARMFUL, compared, ran


class Elements(HTMLParser):
    """Elements with their attributes, and the text of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def data_of(html: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_has_the_tables_of_the_command_and_nothing_to_load():
    page = Elements(compared().report().html)
    text = "".join(page.text)
    assert "10gbe: 50 us one way, 10 Gbit/s, 4 workers, 40 steps" in text and "Waiting: part of a step" in text
    linked = [attrs for tag, attrs in page.found if {"src", "srcset"} & set(attrs) or (tag == "link")]
    assert linked == [{"rel": "icon", "href": "data:,"}]
    assert all(attrs["href"].startswith("#") for tag, attrs in page.found if tag == "a")


def test_names_of_others_are_texts_in_markup_and_in_data():
    html = compared().report().html
    page = Elements(html)
    assert sum(tag == "script" for tag, _ in page.found) == 2
    assert HARMFUL in "".join(page.text)
    assert HARMFUL in [one["name"] for one in data_of(html)["styles"]]
    assert not re.search("[<>&\u2028]", str(json_for_script({"a": HARMFUL, "b": ["<!--", "]]>"]})))
    assert json.loads(str(json_for_script({HARMFUL: HARMFUL}))) == {HARMFUL: HARMFUL}


def test_lines_are_medians_and_ranges_of_the_evaluations_at_the_steps_bytes_and_seconds_of_the_curves():
    chart = data_of(compared().report().html)["charts"]["r1-losses"]
    columns = chart["columns"]
    frame = compared().curves.dropna(subset=["loss"])
    assert [one["x"] for one in chart["panels"]] == ["steps", "bytes", "on 10gbe", "on dsl"]
    for one in chart["series"]:
        own = frame[frame["method"] == one["name"]]
        for network in ("10gbe", "dsl"):
            here = own[own["network"] == network]
            by_seed = here.pivot(index="seed", columns="step", values="loss")
            middle, low, high = median_and_range(by_seed.to_numpy())
            for name, values in (("y", middle), ("low", low), ("high", high)):
                np.testing.assert_allclose(columns[one[name]], values, rtol=1e-4)
            first = here[here["seed"] == 0]
            assert columns[one["x"]["steps"]] == first["step"].tolist()
            np.testing.assert_allclose(columns[one["x"][f"on {network}"]], first["seconds"], rtol=1e-4)
            np.testing.assert_allclose(columns[one["x"]["bytes"]], first["bytes"], rtol=1e-4)


def test_several_results_are_sections_and_a_method_has_one_colour(tmp_path):
    page = sl.report([compared(), ran(), ran()], tmp_path / "all.html", title="All & more")
    told = Elements(page.html)
    assert [attrs["id"] for tag, attrs in told.found if tag == "section"] == ["r1", "r2", "r3"]
    assert "All &amp; more" in page.html and (tmp_path / "all.html").read_text() == page.html
    data = data_of(page.html)
    styles = [data["charts"][f"r{n}-losses"]["series"][0]["style"] for n in (2, 3)]
    assert styles[0] == styles[1] and data["styles"][styles[0]]["name"] == ran().rows[0]["method"]


def test_a_notebook_shows_it_in_a_frame_of_its_own():
    shown = Elements(ran().report()._repr_html_())
    [(tag, attrs)] = shown.found
    assert tag == "iframe" and attrs["srcdoc"] == ran().report().html and attrs["title"]


def test_a_file_that_is_no_report_is_left_alone(tmp_path):
    file = tmp_path / "page.html"
    ran().report(file)
    ran().report(file, title="again")
    assert "<title>again" in file.read_text()
    file.write_text("mine")
    with pytest.raises(SpecError, match="a new file, or a report"):
        ran().report(file)
    assert file.read_text() == "mine"
    with pytest.raises(SpecError, match="a place that can be written to"):
        ran().report(tmp_path / "none" / "page.html")


def test_commands_refuse_what_is_no_result_in_one_line(command, tmp_path):
    (tmp_path / "other").mkdir()
    half = ran().save(tmp_path / "half")
    (half / "curves.parquet").write_bytes((half / "curves.parquet").read_bytes()[:400])
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "run.json").write_text('{"syncline": "0.1.0", "rows": [')
    for given in (["nothing"], ["other"], ["half"], ["none"], ["half", "other"], []):
        done = command("report", *given)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), given
    assert not (tmp_path / "report.html").exists()
    ran().save(tmp_path / "runs" / "whole")
    done = command("report", "whole", "-o", "page.html")
    assert done.code == 0 and "report in page.html" in done.err and (tmp_path / "page.html").is_file()


def test_what_was_never_evaluated_has_no_lines(tmp_path):
    folder = ran().save(tmp_path / "kept")
    assert read_curves(folder / "curves.parquet").curves
    (folder / "curves.parquet").unlink()
    html = sl.report(folder).html
    assert set(data_of(html)["charts"]) == {"r1-spans", "r1-placement"}
    assert "Not in this result: losses over the steps." in html
    with pytest.raises(SynclineError):
        sl.report([])
