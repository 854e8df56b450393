"""The check of the site's links finds what is wrong, and the site has every page."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from syncline.methods import METHOD_KINDS

ROOT = Path(__file__).parents[1]
WEBSITE = ROOT / "website"
mistakes = runpy.run_path(str(WEBSITE / "check_links.py"))["mistakes"]


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("sub/b.html", None),
        ("sub/b.html#here", None),
        ("#top", None),
        ("https://example.org/x", None),
        ("sub/b.html#there", "no such anchor"),
        ("sub/c.html", "no such file"),
        ("https://example", "no address"),
        ("htp://example.org", "no link that a browser follows"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, link, wrong):
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(f'<p id="top"><a href="{link}">x</a> <a href="sub/b.html">b</a></p>')
    (tmp_path / "sub" / "b.html").write_text('<p id="here"><a href="../index.html">back</a></p>')
    assert mistakes(tmp_path) == ([f"index.html: {link}: {wrong}"] if wrong else [])


def test_a_page_that_no_link_leads_to_is_found(tmp_path):
    (tmp_path / "index.html").write_text("<p>alone</p>")
    (tmp_path / "b.html").write_text('<a href="index.html">back</a>')
    assert mistakes(tmp_path) == [f"{tmp_path / 'b.html'}: no link leads here"]


@pytest.mark.parametrize(
    "loads",
    [
        '<script defer src="https://cdn.example.org/m.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/f.css">',
        '<img alt="" src="https://example.org/p.svg">',
    ],
)
def test_a_page_that_is_loaded_in_part_from_elsewhere_is_found(tmp_path, loads):
    page = tmp_path / "index.html"
    page.write_text('<link rel="canonical" href="https://example.org/"><a href="https://example.org/">there</a>')
    assert mistakes(tmp_path) == []
    page.write_text(loads)
    (wrong,) = mistakes(tmp_path)
    assert wrong.endswith("is loaded from elsewhere")


def test_every_page_has_a_place_in_the_site_and_none_has_two():
    contents = (WEBSITE / "index.md").read_text(encoding="utf-8")
    listed = Counter(re.findall(r"^(?:.*<)?([\w/.-]+?)>?$", contents, re.MULTILINE))
    pages = {str(page.relative_to(ROOT).with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert not pages - set(listed)
    assert [page for page, times in listed.items() if times > 1] == []


def test_every_method_has_a_page_that_says_what_it_is_and_how_to_cite_it(tmp_path):
    pages = runpy.run_path(str(WEBSITE / "method_pages.py"))
    pages["write"](tmp_path)
    assert {page.stem for page in tmp_path.glob("*.md")} == {"index", *METHOD_KINDS.names()}
    for kind in METHOD_KINDS.names():
        text, method = (tmp_path / f"{kind}.md").read_text(encoding="utf-8"), METHOD_KINDS.get(kind)
        told = text.rpartition("## How to cite")[2]
        assert method.source in told and all(paper in told for paper in pages["papers"](method))
        assert all(f"| `{name}` |" in text for name in method.model_fields if name not in ("kind", "label"))
        assert "](../docs/methods" in text, "a page of its family"


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_question_and_ends_with_what_to_change(notebook):
    cells = notebook.read_text(encoding="utf-8").split("# %%")
    assert "?" in cells[1]
    assert cells[-1].startswith(" [markdown]\n# ## What to change next\n")
