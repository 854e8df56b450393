"""YAML as people mean it: 1e-3 is a number, and no key is there twice."""

from __future__ import annotations

import functools
import math
import re
from typing import Any


def parse_yaml(text: str) -> Any:
    """What a YAML text holds.

    YAML 1.1 but for two things. Its floats need a dot, so 1e-3 would be text: here it is a number, as in YAML 1.2. And
    a key that is there twice is refused, as YAML demands and PyYAML does not: the last one would win in silence.

    Raises:
        ValueError: no YAML, a key twice, or too much; in one line.
    """
    import yaml  # only here: who reads no file needs no parser

    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None and _unfolded(node, {}) > MOST_VALUES:
            raise ValueError(f"aliases that unfold to more than {MOST_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


MOST_CHARACTERS = 1_000_000
"""Of a text: reading them takes about ten seconds, and a spec has a few thousand."""

MOST_VALUES = 1_000_000
"""In a file, with every alias written out: a few lines of aliases of aliases would fill the memory."""


def _unfolded(node: Any, counts: dict[int, float]) -> float:
    """How many values a node stands for; infinitely many if it is inside itself."""
    if id(node) not in counts:
        counts[id(node)] = math.inf
        inside = node.value if isinstance(node.value, list) else []
        parts = [part for one in inside for part in (one if isinstance(one, tuple) else (one,))]
        counts[id(node)] = 1.0 + sum(_unfolded(part, counts) for part in parts)
    return counts[id(node)]


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    return Loader
