"""The tables as compiled code sees them: ``views.messages(addresses)`` is the table ``messages``."""

from __future__ import annotations

from typing import Any

from syncline.sim.events.compiled import inlined, table_at
from syncline.sim.events.state import AT, TABLES

_core = table_at(AT["core"], TABLES["core"])


@inlined
def core(addresses: Any) -> Any:
    """Return the single record of the core."""
    return _core(addresses)[0]


def __getattr__(name: str) -> Any:
    """Return the function that returns the table of this name."""
    if name not in TABLES:
        raise AttributeError(name)
    table = globals()[name] = table_at(AT[name], TABLES[name])
    return table
