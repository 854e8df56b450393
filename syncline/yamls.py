"""A YAML parser in which 1e-3 is a number and duplicate keys are errors."""

from __future__ import annotations

import functools
import math
import re
from typing import Any


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    The text is YAML 1.1 with two differences. Floats of YAML 1.1 need a dot, so that 1e-3 would be text; here it is a
    number, as in YAML 1.2. A duplicate key is an error, as YAML demands; PyYAML would silently take the last value.

    Raises:
        ValueError: the text is not YAML, has a duplicate key, or is too large; the message is one line.
    """
    import yaml  # imported late, because many commands read no file

    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None and _count_expanded_values(node, {}) > MOST_VALUES:
            raise ValueError(f"aliases that unfold to more than {MOST_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


MOST_CHARACTERS = 1_000_000
"""Largest number of characters of a text: reading them takes about ten seconds, and a spec has a few thousand."""

MOST_VALUES = 1_000_000
"""Largest number of values with all aliases expanded: a few lines of nested aliases could fill the memory."""


def _count_expanded_values(node: Any, counts: dict[int, float]) -> float:
    """Return the number of values of a node with all aliases expanded; infinity if the node contains itself."""
    if id(node) not in counts:
        counts[id(node)] = math.inf
        entries = node.value if isinstance(node.value, list) else []
        parts = [part for entry in entries for part in (entry if isinstance(entry, tuple) else (entry,))]
        counts[id(node)] = 1.0 + sum(_count_expanded_values(part, counts) for part in parts)
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
