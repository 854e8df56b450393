"""``syncline/methods/functions.pyi``, written anew: ``python -m tests.methods.stub``, and ``ruff format`` after it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from syncline.methods import functions
from syncline.methods.constructor import kinds

FILE = Path(functions.__file__).with_suffix(".pyi")

HEAD = '''"""What the functions that make methods take, for type checkers; ``python -m tests.methods.stub`` wrote it."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from syncline.methods.parts.method_spec import MethodBase

def __getattr__(name: str) -> Callable[..., MethodBase]: ...
'''


def written(annotation: Any) -> str:
    """A type as a file has it."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(sorted(dict.fromkeys(map(written, inner)), key="None".__eq__))  # None last
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin is Sequence:
        return f"Sequence[{written(inner[0])}]"
    return "None" if annotation is type(None) else str(annotation.__name__)


def default(value: Any) -> str:
    """A default as a file has it; of a part that is an object, that there is one."""
    return repr(value) if value is None or isinstance(value, bool | int | float | str | tuple) else "..."


def stub() -> str:
    """The whole file."""
    lines = [HEAD]
    for name in sorted(kinds()):
        before, given = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
        for one in inspect.signature(getattr(functions, name)).parameters.values():
            if one.kind is one.KEYWORD_ONLY and before is not one.kind:
                given.append("*")
            before, stars = one.kind, "**" if one.kind is one.VAR_KEYWORD else ""
            value = "" if one.default is one.empty else f" = {default(one.default)}"
            given.append(f"{stars}{one.name}: {written(one.annotation)}{value}")
        lines.append(f"def {name}({', '.join(given)}) -> MethodBase: ...\n")
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")
