"""Flows: how fast bytes move where transfers share channels.

A flow passes all channels of its route at once. Concurrent flows get max-min fair rates, found anew whenever one starts
or ends, and only for the flows that share channels with it, directly or through others. A flow alone on its channels
needs none of this.

Progressive filling: all rates grow together until a channel is full, whose flows then keep theirs. Shares are settled
when all else of an instant has happened, so flows that begin or end together do so for the shares too, and equal ones
stay equal. Of flows that share, only those are on the heap that end first: before any other of them can end, these do,
and shares are settled anew.

Source: D. Bertsekas, R. Gallager, "Data Networks" (1992), section 6.5.2: max-min fairness and progressive filling.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import views
from syncline.sim.events.compiled import core_function
from syncline.sim.events.heap import AFTER_ALL, NORMAL, number, push
from syncline.sim.events.state import DRAINED, LEFT_OVER, SETTLE


@core_function("void", "int64, int64")
def change(addresses, at, turn):
    """A channel has other flows than before."""
    core, channel = views.core(addresses), views.channels(addresses)[at]
    if not core.settling:
        core.settling = 1
        push(addresses, core.now, AFTER_ALL, turn, SETTLE, 0, 0)
    if not channel.changed:
        channel.changed = 1
        views.changed(addresses)[core.changed] = at
        core.changed += 1


@core_function("void", "int64, int64")
def carry(addresses, m, turn):
    """Let the bytes of a message flow from now on. No bytes take no time and no share."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    route = views.routes(addresses)[message.route]
    hops = views.hops(addresses)
    now = core.now
    message.left, message.since = message.nbytes, now
    alone = True
    if message.nbytes != 0.0:
        channels, links = views.channels(addresses), views.links(addresses)
        for hop in range(route.hops):
            channel = channels[hops[route.hop0 + hop]]
            link = m * core.width + hop
            if channel.flows:
                alone = False
                links[channel.tail].after = link
            else:
                channel.head = link
            links[link].before, links[link].after = channel.tail, -1
            channel.tail = link
            channel.flows += 1
        message.flowing = 1
    if alone:
        message.rate, message.due = route.rate, 1
        message.end = now + message.nbytes / route.rate
        message.key = push(addresses, message.end, NORMAL, turn, DRAINED, m, 0)
    else:
        message.rate, message.due, message.key = 0.0, 0, -1  # until the shares are settled
        for hop in range(route.hops):
            change(addresses, hops[route.hop0 + hop], turn)


@core_function("void", "int64")
def leave(addresses, m):
    """The bytes of a message have left: its channels are others'."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    message.due = 0
    if not message.flowing:
        return
    message.flowing = 0
    route = views.routes(addresses)[message.route]
    channels, links, hops = views.channels(addresses), views.links(addresses), views.hops(addresses)
    for hop in range(route.hops):
        at = hops[route.hop0 + hop]
        channel = channels[at]
        link = links[m * core.width + hop]
        if link.before >= 0:
            links[link.before].after = link.after
        else:
            channel.head = link.after
        if link.after >= 0:
            links[link.after].before = link.before
        else:
            channel.tail = link.before
        channel.flows -= 1
        if channel.flows:
            change(addresses, at, number(addresses))


@core_function("UniTuple(int64, 2)", "int64")
def connected(addresses, at):
    """The flows on this channel, on the other channels of these flows, and so on; how many, on how many channels."""
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    found, ahead, asked = views.found(addresses), views.ahead(addresses), views.asked(addresses)
    links, hops, routes = views.links(addresses), views.hops(addresses), views.routes(addresses)
    visit, width = core.visit, core.width
    channels[at].visit = visit
    ahead[0], asked[0] = at, at
    waiting, flows, passed = 1, 0, 1
    while waiting:
        waiting -= 1
        link = channels[ahead[waiting]].head
        while link >= 0:
            m = link // width
            message = messages[m]
            if message.visit != visit:
                message.visit = visit
                message.fair = np.inf
                found[flows] = m
                flows += 1
                route = routes[message.route]
                for hop in range(route.hop0, route.hop0 + route.hops):
                    other = channels[hops[hop]]
                    if other.visit != visit:
                        other.visit = visit
                        ahead[waiting] = hops[hop]
                        waiting += 1
                        asked[passed] = hops[hop]
                        passed += 1
            link = links[link].after
    return flows, passed


@core_function("void", "int64")
def fill(addresses, passed):
    """Max-min fair rates of the flows on so many channels: ``fair`` of each."""
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    asked, links = views.asked(addresses), views.links(addresses)
    hops, routes, width = views.hops(addresses), views.routes(addresses), core.width
    for i in range(passed):
        channel = channels[asked[i]]
        channel.left, channel.growing = channel.bandwidth, channel.flows
    while passed:
        level = np.inf
        for i in range(passed):
            channel = channels[asked[i]]
            each = channel.left / channel.growing
            channel.left_each = each
            level = min(level, each)
        for i in range(passed):
            if channels[asked[i]].left_each == level:
                link = channels[asked[i]].head
                while link >= 0:
                    message = messages[link // width]
                    if message.fair == np.inf:
                        message.fair = level
                        route = routes[message.route]
                        for hop in range(route.hop0, route.hop0 + route.hops):
                            channel = channels[hops[hop]]
                            channel.left -= level
                            channel.growing -= 1
                    link = links[link].after
        still = 0
        for i in range(passed):
            if channels[asked[i]].growing:
                asked[still] = asked[i]
                still += 1
        passed = still


@core_function("void", "int64")
def share(addresses, flows):
    """Give so many flows their rates, and put on the heap which of them end first."""
    core, messages, found = views.core(addresses), views.messages(addresses), views.found(addresses)
    now = core.now
    rounding = np.nextafter(now, np.inf) - now
    first = np.inf
    for i in range(flows):
        message = messages[found[i]]
        rate = message.fair
        if rate != message.rate:
            message.left -= (now - message.since) * message.rate
            if message.left <= LEFT_OVER * message.nbytes + rounding * message.rate:
                message.left = 0.0
            message.rate, message.since = rate, now
            message.end, message.due = now + message.left / rate, 0
            message.key = number(addresses)
        first = min(first, message.end)
    for i in range(flows):
        message = messages[found[i]]
        if message.end == first and not message.due:
            message.due = 1
            message.key = push(addresses, first, NORMAL, message.key, DRAINED, found[i], 0)


@core_function("void")
def settle(addresses):
    """Find the shares on the channels that have changed."""
    core, channels, changed = views.core(addresses), views.channels(addresses), views.changed(addresses)
    many, core.changed, core.settling = core.changed, 0, 0
    core.visit += 1  # marks what has been seen
    for i in range(many):
        channels[changed[i]].changed = 0
    for i in range(many):
        channel = channels[changed[i]]
        if channel.visit != core.visit and channel.flows:
            flows, passed = connected(addresses, changed[i])
            fill(addresses, passed)
            share(addresses, flows)
