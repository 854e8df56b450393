"""The tables as compiled code sees them: ``views.messages(addresses)`` is the table ``messages``."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.sim.events.core.compiling import array_at, fetcher_at, record_at, table_at
from syncline.sim.events.state import AT, TABLES

core = record_at(AT["core"], TABLES["core"])
"""The single record of the core."""

integers, floats = array_at(np.dtype(np.int64)), array_at(np.dtype(np.float64))
"""The array of numbers at an address."""

place_records, entry_records, sending_records = (array_at(TABLES[name]) for name in ("places", "entries", "sendings"))
"""The array of records at an address."""


for _name, _kind in TABLES.items():
    globals().setdefault(_name, table_at(AT[_name], _kind))
    globals()[f"fetch_{_name}"] = fetcher_at(AT[_name], _kind)


def __getattr__(name: str) -> Any:
    """Raise an error for a name that is no table; type checkers learn that there are more names than they see."""
    raise AttributeError(name)
