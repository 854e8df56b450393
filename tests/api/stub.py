"""``syncline/api/functions.pyi``, written anew: ``python -m tests.api.stub``, and ``ruff format`` after it."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from syncline.api import functions
from syncline.questions import question_of

FILE = Path(functions.__file__).with_suffix(".pyi")

HEAD = '''"""The functions that answer questions, for type checkers; ``python -m tests.api.stub`` wrote it."""
'''
MODULES = {
    "collections.abc": ("Callable", "Iterable", "Mapping", "Sequence"),
    "pathlib": ("Path",),
    "typing": ("Any",),
    "syncline.api.result": ("Result",),
    "syncline.api.trainings": ("SweepResult",),
    "syncline.runs.report.page": ("ReportPage",),
    "syncline.specs": ("Experiment",),
}
"""The names of each module that annotations have."""


def stub() -> str:
    """The whole file."""
    definitions = []
    for name in functions.ANSWERS:
        question = question_of(name)
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(question.signature()))
        text = re.split(r"\n>>> ", question.docstring())[0].strip().replace("\\", "\\\\")
        definitions.append(
            f'def {name}{signature}:\n    """{textwrap.indent(text, "    ").strip()}\n    """\n    ...\n'
        )
    body = "\n".join(definitions)
    names = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    used = {module: [name for name in available if name in names] for module, available in MODULES.items()}
    imports = [f"from {module} import {', '.join(found)}" for module, found in used.items() if found]
    return "\n".join([HEAD, *imports, "", "def answer(question: Any, *progress: Any) -> Any: ...", body])


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")
