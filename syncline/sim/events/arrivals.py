"""Arrivals of messages that NCCL sends from one worker to another.

A message arrives ``alpha`` after it has left, as any other, unless the line stays busy. Then it arrives when as many
messages behind it have left as `syncline.costmodel.network.nccl_costs.messages_ahead` says, or when its route has none
in the queue.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import views
from syncline.sim.events.compiled import core_function
from syncline.sim.events.heap import NORMAL, number, push
from syncline.sim.events.state import DELIVERED


@core_function("void", "int64")
def arrive(addresses, m):
    """Schedule the arrival of a program's message that has left, and of those before it that waited for it."""
    core, messages = views.core(addresses), views.messages(addresses)
    nbytes = messages[m].nbytes
    route = views.routes(addresses)[messages[m].route]
    route.queued -= 1
    if route.waiting:
        messages[route.last].next = m
        route.behind += nbytes
    else:
        route.first, route.behind = m, 0.0
    route.last = m
    route.waiting += 1
    while route.waiting and (
        not route.queued or route.waiting > core.ahead or route.behind + nbytes > core.ahead_bytes
    ):
        first = route.first
        push(addresses, core.now + messages[first].after, NORMAL, number(addresses), DELIVERED, first, 0)
        route.waiting -= 1
        if route.waiting:
            route.first = messages[first].next
            route.behind -= messages[route.first].nbytes
