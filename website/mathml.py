"""Formulas as MathML, which browsers draw themselves: pages open without a network, which MathJax's do not."""

from __future__ import annotations

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def mathml(tex: str, display: str) -> str:
    """A formula as a ``<math>`` element; ``display`` is ``inline`` or ``block``.

    Raises ``ValueError`` where a part of it stays TeX, which a reader would see.
    """
    element: str = convert(tex.strip(), display=display)
    if "\\" in element or "merror" in element:
        raise ValueError(f"the formula {tex} is not wholly understood; write it otherwise")
    return element


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Draw a formula within a line."""
    writer.body.append(f'<span class="math notranslate">{mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Draw a formula on a line of its own, which scrolls where it is wider than the page."""
    writer.body.append(writer.starttag(node, "div", CLASS="math notranslate", tabindex="0"))
    writer.body.append(f"{mathml(node.astext(), 'block')}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
