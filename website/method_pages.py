"""A page per method, from what the method says of itself: ``python website/method_pages.py FOLDER``.

Description and knobs are those of its spec's docstring and fields, what travels is its own closed form. Nothing about a
method is written here; ``papers.yaml`` has the papers' titles.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic_core import PydanticUndefined

from syncline.errors import SynclineError
from syncline.methods import METHOD_KINDS, MethodBase, method_of
from syncline.methods.constructor import field_descriptions

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
WORKERS = 8


def papers(method: type[MethodBase]) -> list[str]:
    """What to cite, each paper that the method's source names."""
    known = yaml.safe_load((HERE / "papers.yaml").read_text(encoding="utf-8"))
    names = [re.sub(r",? (Algorithm|section|full rank).*", "", one) for one in method.source.split("; ")]
    return [" ".join(known[name].split()) for name in names]


def families(kind: str) -> Iterator[Path]:
    """Pages that name the kind in a heading's table or as ``kind`` of a spec."""
    for page in [DOCS / "methods.md", *sorted((DOCS / "methods").glob("*.md"))]:
        if page.stem != "public_code" and re.search(rf"`{kind}`|kind: {kind}\b", page.read_text(encoding="utf-8")):
            yield page


def knobs(method: type[MethodBase]) -> Iterator[str]:
    """Rows of the table of fields: those that all methods have come last."""
    descriptions = field_descriptions(method)
    own = [name for name in method.model_fields if name not in MethodBase.model_fields]
    for name in [*own, *(name for name in MethodBase.model_fields if name not in ("kind", "label"))]:
        field = method.model_fields[name]
        default = field.get_default(call_default_factory=True) if not field.is_required() else PydanticUndefined
        shown = "to be given" if default is PydanticUndefined else f"`{_plain(default)}`"
        yield f"| `{name}` | {shown} | {' '.join(descriptions[name].split())} |"


def _plain(value: object) -> object:
    """Parts of a method as specs write them."""
    return getattr(value, "kind", value) if value is not None else "none"


def travels(method: MethodBase) -> str:
    """Its bytes per worker and step in closed form."""
    try:
        return method.traffic_formula(WORKERS)
    except SynclineError as error:
        return str(error)


def page(kind: str, method: type[MethodBase]) -> str:
    """The page of one kind, in Markdown."""
    lines = [f"# {kind}", "", "```{eval-rst}", f".. autoclass:: {method.__module__}.{method.__qualname__}", "```", ""]
    if method.presets:
        lines += ["## Named starting points", "", "| name | fields | bytes per worker and step |", "|---|---|---|"]
        for name, fields in method.presets.items():
            told = ", ".join(f"`{key}: {value}`" for key, value in fields.items())
            lines.append(f"| `{name}` | {told} | {travels(method_of(name))} |")
        lines += ["", f"`N` parameters, `N'` of them in no matrix; fp32, {WORKERS} workers.", ""]
        name = next(iter(method.presets))
        lines += ["```", f"syncline project --method {name},ddp-adam --network wan --workers {WORKERS}", "```", ""]
    lines += ["## Knobs", "", "| field | default | what it is |", "|---|---|---|", *knobs(method), ""]
    lines += ["## More", ""]
    lines += [f"- [{one.stem}](../{one.relative_to(DOCS.parent)})" for one in families(kind)]
    lines += ["- [every field of a spec](../docs/specs.md)", ""]
    lines += ["## How to cite", "", f"The method ({method.source}):", ""]
    lines += [f"- {one}" for one in papers(method)]
    lines += [
        "",
        "This implementation: [CITATION.cff](../CITATION.cff), with the commit that `syncline --version` prints.",
        "",
    ]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """All pages, and their list."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = sorted(METHOD_KINDS.names())
    classes = {kind: METHOD_KINDS.get(kind) for kind in kinds}
    for kind, method in classes.items():
        (folder / f"{kind}.md").write_text(page(kind, method), encoding="utf-8")
    rows = [
        f"| [{kind}]({kind}.md) | {(one.__doc__ or '').splitlines()[0]} | {one.source} |"
        for kind, one in classes.items()
    ]
    toctree = ["```{toctree}", ":hidden:", "", *kinds, "```"]
    intro = ["# Every method", "", "What they share, and how knobs are set: [methods](../docs/methods.md).", ""]
    table = ["| kind | what it does | source |", "|---|---|---|", *rows, ""]
    (folder / "index.md").write_text("\n".join([*intro, *table, *toctree, ""]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
