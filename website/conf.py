"""Sphinx's settings. ``make docs`` lays the sources out under ``build/site`` (lay_out.py) and builds from there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

from syncline import __version__
from syncline.methods import MethodBase

project = "Syncline"
author = "the Syncline contributors"
release = version = __version__
project_copyright = f"the Syncline contributors, Apache License 2.0. Version {release}"

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathml"]
include_patterns = [
    "index.md",
    "*.md",
    "docs/**.md",
    "examples/README.md",
    "results/**.md",
    "notebooks/*.ipynb",
    "api/*.md",
    "methods/*.md",
    "syncline/measure/validation/measured/provenance.md",
]

# Pages are read on a code host, too: plain Markdown, whose links name files.
myst_enable_extensions = ["dollarmath"]
myst_update_mathjax = False
html_math_renderer = "mathml"
myst_heading_anchors = 4
# Notebooks come with the outputs of the tests' run of them.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Syncline"
html_static_path = ["static"]
html_css_files = ["site.css"]


def lead_to_the_page_of_a_notebook(app: Sphinx, page: str, source: list[str]) -> None:
    """In the repository a notebook is a script, here it is a page with its outputs."""
    source[0] = re.sub(r"(\]\([./]*notebooks/\w+)\.py\)", r"\1.ipynb)", source[0])


def leave_out_what_the_table_has(
    app: Sphinx, what: str, name: str, it: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """The knobs of a method stand in a table of its page."""
    return ("", None) if isinstance(it, type) and issubclass(it, MethodBase) else None


def setup(app: Sphinx) -> None:
    """Connect what changes pages as they are read."""
    app.connect("autodoc-process-signature", leave_out_what_the_table_has)
    app.connect("source-read", lead_to_the_page_of_a_notebook)
