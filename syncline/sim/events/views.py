"""The tables as compiled code sees them."""

from __future__ import annotations

from typing import Any

from syncline.sim.events.compiled import inlined, table_at
from syncline.sim.events.state import AT, TABLES

_core = table_at(AT["core"], TABLES["core"])


@inlined
def core(addresses: Any) -> Any:
    """Return the single record of the core."""
    return _core(addresses)[0]


heap = table_at(AT["heap"], TABLES["heap"])
waits = table_at(AT["waits"], TABLES["waits"])
operations = table_at(AT["operations"], TABLES["operations"])
workers = table_at(AT["workers"], TABLES["workers"])
spans = table_at(AT["spans"], TABLES["spans"])
parts = table_at(AT["parts"], TABLES["parts"])
keys = table_at(AT["keys"], TABLES["keys"])
marks = table_at(AT["marks"], TABLES["marks"])
instances = table_at(AT["instances"], TABLES["instances"])
rank_table = table_at(AT["ranks"], TABLES["ranks"])
messages = table_at(AT["messages"], TABLES["messages"])
links = table_at(AT["links"], TABLES["links"])
ports = table_at(AT["ports"], TABLES["ports"])
channels = table_at(AT["channels"], TABLES["channels"])
routes = table_at(AT["routes"], TABLES["routes"])
hops = table_at(AT["hops"], TABLES["hops"])
plans = table_at(AT["plans"], TABLES["plans"])
places = table_at(AT["places"], TABLES["places"])
entries = table_at(AT["entries"], TABLES["entries"])
sendings = table_at(AT["sendings"], TABLES["sendings"])
sources = table_at(AT["sources"], TABLES["sources"])
openings = table_at(AT["openings"], TABLES["openings"])
slots = table_at(AT["slots"], TABLES["slots"])
late_s = table_at(AT["late_s"], TABLES["late_s"])
late = table_at(AT["late"], TABLES["late"])
changed = table_at(AT["changed"], TABLES["changed"])
found = table_at(AT["found"], TABLES["found"])
ahead = table_at(AT["ahead"], TABLES["ahead"])
asked = table_at(AT["asked"], TABLES["asked"])
