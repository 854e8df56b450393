"""The tables as compiled code has them."""

from __future__ import annotations

from typing import Any

from syncline.sim.events.compiled import inlined, table
from syncline.sim.events.state import AT, TABLES

_core = table(AT["core"], TABLES["core"])


@inlined
def core(addresses: Any) -> Any:
    """The one record of what there is one of."""
    return _core(addresses)[0]


heap = table(AT["heap"], TABLES["heap"])
operations = table(AT["operations"], TABLES["operations"])
workers = table(AT["workers"], TABLES["workers"])
spans = table(AT["spans"], TABLES["spans"])
parts = table(AT["parts"], TABLES["parts"])
keys = table(AT["keys"], TABLES["keys"])
instances = table(AT["instances"], TABLES["instances"])
ranks = table(AT["ranks"], TABLES["ranks"])
messages = table(AT["messages"], TABLES["messages"])
links = table(AT["links"], TABLES["links"])
ports = table(AT["ports"], TABLES["ports"])
channels = table(AT["channels"], TABLES["channels"])
routes = table(AT["routes"], TABLES["routes"])
hops = table(AT["hops"], TABLES["hops"])
plans = table(AT["plans"], TABLES["plans"])
places = table(AT["places"], TABLES["places"])
entries = table(AT["entries"], TABLES["entries"])
sendings = table(AT["sendings"], TABLES["sendings"])
sources = table(AT["sources"], TABLES["sources"])
slots = table(AT["slots"], TABLES["slots"])
late_s = table(AT["late_s"], TABLES["late_s"])
late = table(AT["late"], TABLES["late"])
changed = table(AT["changed"], TABLES["changed"])
found = table(AT["found"], TABLES["found"])
ahead = table(AT["ahead"], TABLES["ahead"])
asked = table(AT["asked"], TABLES["asked"])
