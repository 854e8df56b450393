"""Flows: the rates of bytes if transfers share channels.

A flow passes all channels of its route at once. Concurrent flows get max-min fair rates. These are computed again
whenever a flow starts or ends, and only for the flows that share channels with it, directly or through others. A flow
alone on its channels needs none of this.

Progressive filling: all rates grow together until a channel is full, whose flows then keep their rates. Shares are
settled after all else of an instant, so flows that begin or end together do so for the shares too, and equal flows stay
equal. Among flows that share, only those that end first are on the heap: before any other of them can end, these do,
and the shares are settled again.

Often one channel carries all flows that share and is full first: their *hub*, such as the link of a site. Then its
equal share is the rate of all. A channel stays the hub under two conditions. Each new flow passes it, and otherwise
only channels that carry no other flow or have the same hub. No other channel could be full before it, for which a lower
bound is kept. So a flow that comes or goes costs a number per flow, and no filling. A channel is a hub as long as it is
its own hub.

Source: D. Bertsekas, R. Gallager, "Data Networks" (1992), section 6.5.2: max-min fairness and progressive filling.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function, spacing
from syncline.sim.events.core.heap import number, push

NO_HUB = -1


@core_function("void", "int64, int64")
def change(addresses, channel_number, turn):
    """Note that the flows on a channel have changed, and schedule the settling of shares."""
    core, channel = views.core(addresses), views.channels(addresses)[channel_number]
    if not core.settling:
        core.settling = 1
        push(addresses, core.now, codes.AFTER_ALL, turn, codes.SETTLE, 0, 0)
    if not channel.changed:
        channel.changed = 1
        views.changed(addresses)[core.changed] = channel_number
        core.changed += 1


@core_function("void", "int64, int64")
def join_hub(addresses, hop0, many):
    """Update the hub of these channels for a new flow: keep it if they and all flows on them still have one hub."""
    channels, hops = views.channels(addresses), views.hops(addresses)
    hub, is_one, passes = NO_HUB, True, False
    for hop in range(hop0, hop0 + many):
        channel = channels[hops[hop]]
        if channel.flows > 1:
            channel_hub = channel.hub
            is_one = is_one and channel_hub != NO_HUB and (hub == NO_HUB or hub == channel_hub)  # noqa: PLR1714, SIM109
            hub = channel_hub
    if is_one:
        for hop in range(hop0, hop0 + many):
            passes = passes or hops[hop] == hub
    if passes and channels[hub].hub == hub:
        for hop in range(hop0, hop0 + many):
            channels[hops[hop]].hub = hub
    else:
        for hop in range(hop0, hop0 + many):
            channel = channels[hops[hop]]
            if channel.hub != NO_HUB:
                channels[channel.hub].hub = NO_HUB
            channel.hub = NO_HUB


@core_function("void", "int64, int64")
def carry(addresses, m, turn):
    """Let the bytes of a message flow from now on; a message without bytes takes no time and no share."""
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
            link = (m << core.shift) + hop
            if channel.flows:
                alone = False
                links[channel.tail].after = link
            else:
                channel.head, channel.hub = link, NO_HUB
            links[link].before, links[link].after = channel.tail, -1
            channel.tail = link
            channel.flows += 1
        message.flowing = 1
    if alone:
        message.rate, message.due = route.rate, 1
        message.end = now + message.nbytes / route.rate
        message.key = push(addresses, message.end, codes.NORMAL, turn, codes.DRAINED, m, 0)
    else:
        message.rate, message.due, message.key = 0.0, 0, -1  # placeholders until the shares are settled
        join_hub(addresses, route.hop0, route.hops)
        for hop in range(route.hops):
            change(addresses, hops[route.hop0 + hop], turn)


@core_function("void", "int64")
def leave(addresses, m):
    """Remove a message whose bytes have left from its channels."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    message.due = 0
    if not message.flowing:
        return
    message.flowing = 0
    route = views.routes(addresses)[message.route]
    channels, links, hops = views.channels(addresses), views.links(addresses), views.hops(addresses)
    for hop in range(route.hops):
        channel_number = hops[route.hop0 + hop]
        channel = channels[channel_number]
        link = links[(m << core.shift) + hop]
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
            change(addresses, channel_number, number(addresses))


@core_function("UniTuple(int64, 2)", "int64, int64")
def connected(addresses, first_channel, hub):
    """Collect the flows connected with this channel through shared channels; return the counts of both.

    All flows are on their hub, if they have one, so the search stops at the hub.
    """
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    flow_list, ahead, seen_channels = views.found(addresses), views.ahead(addresses), views.asked(addresses)
    links, hops, routes = views.links(addresses), views.hops(addresses), views.routes(addresses)
    visit, shift = core.visit, core.shift
    channels[first_channel].visit = visit
    ahead[0], seen_channels[0] = first_channel, first_channel
    waiting, flows, passed = 1, 0, 1
    while waiting:
        waiting -= 1
        channel_number = ahead[waiting]
        link = channels[channel_number].head
        if channel_number == hub:
            others = flows > 0
            while link >= 0:
                m = link >> shift
                if not others or messages[m].visit != visit:
                    flow_list[flows] = m
                    flows += 1
                link = links[link].after
            break
        while link >= 0:
            m = link >> shift
            message = messages[m]
            if message.visit != visit:
                message.visit = visit
                message.fair = np.inf
                flow_list[flows] = m
                flows += 1
                route = routes[message.route]
                for hop in range(route.hop0, route.hop0 + route.hops):
                    other = channels[hops[hop]]
                    if other.visit != visit:
                        other.visit = visit
                        ahead[waiting] = hops[hop]
                        waiting += 1
                        seen_channels[passed] = hops[hop]
                        passed += 1
            link = links[link].after
    return flows, passed


@core_function("float64", "int64, int64")
def find_hub(addresses, flows, passed):
    """Return the rate of each flow at the hub of these flows; 0 if they have no hub."""
    channels, seen_channels = views.channels(addresses), views.asked(addresses)
    level = np.inf
    for i in range(passed):
        channel = channels[seen_channels[i]]
        channel.left_each = channel.bandwidth / channel.flows
        level = min(level, channel.left_each)
    hub, bound = NO_HUB, np.inf
    for i in range(passed):
        channel = channels[seen_channels[i]]
        if hub == NO_HUB and channel.flows == flows and channel.left_each == level:
            hub = seen_channels[i]
        else:
            bound = min(bound, channel.left_each)
    for i in range(passed):
        channels[seen_channels[i]].hub = hub
    if hub == NO_HUB:
        return 0.0
    channels[hub].bound = bound
    return level


@core_function("float64", "int64, int64")
def share_of_hub(addresses, hub, many):
    """Return each flow's rate at its hub after channels have changed; 0 if another may be full before it."""
    channels, changed = views.channels(addresses), views.changed(addresses)
    hub_channel = channels[hub]
    for i in range(many):
        channel = channels[changed[i]]
        if channel.hub == hub and channel.flows and changed[i] != hub:
            hub_channel.bound = min(hub_channel.bound, channel.bandwidth / channel.flows)
    level = hub_channel.bandwidth / hub_channel.flows
    return level if level <= hub_channel.bound else 0.0


@core_function("void", "int64")
def fill(addresses, passed):
    """Compute the max-min fair rates of the flows on ``passed`` channels: the field ``fair`` of each."""
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    seen_channels, links = views.asked(addresses), views.links(addresses)
    hops, routes, shift = views.hops(addresses), views.routes(addresses), core.shift
    for i in range(passed):
        channel = channels[seen_channels[i]]
        channel.left, channel.growing = channel.bandwidth, channel.flows
    while passed:
        level = np.inf
        for i in range(passed):
            channel = channels[seen_channels[i]]
            equal_part = channel.left / channel.growing
            channel.left_each = equal_part
            level = min(level, equal_part)
        for i in range(passed):
            if channels[seen_channels[i]].left_each == level:
                link = channels[seen_channels[i]].head
                while link >= 0:
                    message = messages[link >> shift]
                    if message.fair == np.inf:
                        message.fair = level
                        route = routes[message.route]
                        for hop in range(route.hop0, route.hop0 + route.hops):
                            channel = channels[hops[hop]]
                            channel.left -= level
                            channel.growing -= 1
                    link = links[link].after
        growing = 0
        for i in range(passed):
            if channels[seen_channels[i]].growing:
                seen_channels[growing] = seen_channels[i]
                growing += 1
        passed = growing


@core_function("void", "int64, float64")
def share(addresses, flows, level):
    """Give the flows their rates, all equal if ``level`` is not 0, and schedule the flows that end first."""
    core, messages, flow_list = views.core(addresses), views.messages(addresses), views.found(addresses)
    now = core.now
    rounding = spacing(now)
    first, last, alike, turn = np.inf, -1, False, core.number
    for i in range(flows):
        message = messages[flow_list[i]]
        rate = level if level != 0.0 else message.fair
        before = message.rate
        if rate != before:
            remaining = message.left - (now - message.since) * before
            if remaining <= codes.LEFT_OVER * message.nbytes + rounding * before:
                remaining = 0.0
            message.left, message.rate, message.since = remaining, rate, now
            message.end, message.due = now + remaining / rate, 0
            turn += 1
            message.key = turn
        end = message.end
        if end <= first:
            alike = end == first
            first, last = end, i
    core.number = turn
    for i in range(0 if alike else last, last + 1):
        message = messages[flow_list[i]]
        if message.end == first and not message.due:
            message.due = 1
            message.key = push(addresses, first, codes.NORMAL, message.key, codes.DRAINED, flow_list[i], 0)


@core_function("void")
def settle(addresses):
    """Compute the shares on the channels that have changed."""
    core, channels, changed = views.core(addresses), views.channels(addresses), views.changed(addresses)
    many, core.changed, core.settling = core.changed, 0, 0
    core.visit += 1  # marks the flows and channels that were visited
    for i in range(many):
        channels[changed[i]].changed = 0
    for i in range(many):
        channel = channels[changed[i]]
        if channel.visit == core.visit or not channel.flows:
            continue
        hub = channel.hub
        if hub != NO_HUB and channels[hub].hub == hub:
            if channels[hub].visit == core.visit:
                continue
            level = share_of_hub(addresses, hub, many)
            if level != 0.0:
                flows, _ = connected(addresses, changed[i], hub)
                channels[hub].visit = core.visit
                share(addresses, flows, level)
                continue
        flows, passed = connected(addresses, changed[i], NO_HUB)
        level = find_hub(addresses, flows, passed)
        if level == 0.0:
            fill(addresses, passed)
        share(addresses, flows, level)
