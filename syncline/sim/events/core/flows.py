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
from syncline.sim.events.core.heap import next_number, push_event

NO_HUB = -1


@core_function("void", "int64, int64")
def mark_changed(addresses, channel_number, number):
    """Note that a channel's flows have changed; the first of an instant schedules the settling, event ``number``."""
    core, channel = views.core(addresses), views.channels(addresses)[channel_number]
    if not core.settling:
        core.settling = 1
        push_event(addresses, core.now, codes.AFTER_ALL, number, codes.SETTLE, 0, 0)
    if not channel.changed:
        channel.changed = 1
        views.changed(addresses)[core.changed] = channel_number
        core.changed += 1


@core_function("void", "int64, int64")
def update_hub(addresses, first_link, num_links):
    """Keep the hub of a new flow's channels if the new flow and all flows on the channels pass it; else remove it.

    The flow has ``num_links`` links from ``first_link`` on. Without a common hub, neither their channels nor the
    previous hubs of these have one any more.
    """
    channels, links = views.channels(addresses), views.links(addresses)
    hub, have_one_hub, passes_hub = NO_HUB, True, False
    for link in range(first_link, first_link + num_links):
        channel = channels[links[link].channel]
        if channel.flows > 1:
            channel_hub = channel.hub
            if channel_hub == NO_HUB or (hub != NO_HUB and hub != channel_hub):  # noqa: PLR1714
                have_one_hub = False
            hub = channel_hub
    if have_one_hub:
        for link in range(first_link, first_link + num_links):
            passes_hub = passes_hub or links[link].channel == hub
    if passes_hub and channels[hub].hub == hub:
        for link in range(first_link, first_link + num_links):
            channels[links[link].channel].hub = hub
    else:
        for link in range(first_link, first_link + num_links):
            channel = channels[links[link].channel]
            if channel.hub != NO_HUB:
                channels[channel.hub].hub = NO_HUB
            channel.hub = NO_HUB


@core_function("void", "int64, int64")
def begin_flow(addresses, message_id, number):
    """Let the bytes of a message flow from now on; a message without bytes takes no time and no bandwidth.

    A flow that is alone on its channels gets the route's rate at once. Otherwise the rates of all flows that share
    channels with it are settled at the end of this instant. Each channel has a list of its flows, whose *links* are
    records of the table ``links``: a message has ``2^shift`` of them, one per channel of its route.

    ``number`` is the number of the event that ends the flow, or settles the rates.
    """
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    links, now = views.links(addresses), core.now
    first_link = message_id << core.shift
    message.left, message.since = message.nbytes, now
    is_alone = True
    if message.nbytes != 0.0:
        for link in range(first_link, first_link + message.hops):
            channel = views.channels(addresses)[links[link].channel]
            if channel.flows:
                is_alone = False
                links[channel.tail].after = link
            else:
                channel.head, channel.hub = link, NO_HUB
            links[link].before, links[link].after = channel.tail, -1
            channel.tail = link
            channel.flows += 1
        message.flowing = 1
    if is_alone:
        message.due, message.end = 1, now + message.nbytes / message.rate
        message.key = push_event(addresses, message.end, codes.NORMAL, number, codes.DRAINED, message_id, 0)
    else:
        message.rate, message.due, message.key = 0.0, 0, -1  # placeholders until the shares are settled
        update_hub(addresses, first_link, message.hops)
        for link in range(first_link, first_link + message.hops):
            mark_changed(addresses, links[link].channel, number)


@core_function("void", "int64")
def end_flow(addresses, message_id):
    """Remove the flow of a message, whose last byte has left, from its channels."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    message.due = 0
    channels, links = views.channels(addresses), views.links(addresses)
    if not message.flowing:
        return
    message.flowing = 0
    for number in range(message_id << core.shift, (message_id << core.shift) + message.hops):
        link = links[number]
        channel = channels[link.channel]
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
            mark_changed(addresses, link.channel, next_number(addresses))


@core_function("UniTuple(int64, 2)", "int64, int64")
def find_connected_flows(addresses, first_channel, hub):
    """Find the flows that are connected with a channel through shared channels.

    The flows are written into the table ``found``, the channels into ``seen``. If the flows have a hub, all of them
    are on it, so the search stops there; else ``hub`` is ``NO_HUB``.

    Return the number of flows, and the number of channels.
    """
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    flow_list, to_visit, seen_channels = views.found(addresses), views.to_visit(addresses), views.seen(addresses)
    links, visit, shift = views.links(addresses), core.visit, core.shift
    channels[first_channel].visit = visit
    to_visit[0], seen_channels[0] = first_channel, first_channel
    num_to_visit, num_flows, num_channels = 1, 0, 1
    while num_to_visit:
        num_to_visit -= 1
        channel_number = to_visit[num_to_visit]
        link = channels[channel_number].head
        if channel_number == hub:
            has_others = num_flows > 0  # found on other channels before, so that they are not listed twice
            while link >= 0:
                message_id = link >> shift
                if not has_others or messages[message_id].visit != visit:
                    flow_list[num_flows] = message_id
                    num_flows += 1
                link = links[link].after
            break
        while link >= 0:
            message_id = link >> shift
            message = messages[message_id]
            if message.visit != visit:
                message.visit = visit
                message.fair = np.inf
                flow_list[num_flows] = message_id
                num_flows += 1
                for number in range(message_id << shift, (message_id << shift) + message.hops):
                    other = links[number].channel
                    if channels[other].visit != visit:
                        channels[other].visit = visit
                        to_visit[num_to_visit] = seen_channels[num_channels] = other
                        num_to_visit += 1
                        num_channels += 1
            link = links[link].after
    return num_flows, num_channels


@core_function("float64", "int64, int64")
def find_hub(addresses, num_flows, num_channels):
    """Find the channel that limits all flows that were found, their hub, and return each flow's rate; 0 without a hub.

    The hub is the channel that carries all ``num_flows`` flows on the ``num_channels`` channels and is full first.
    """
    channels, seen_channels = views.channels(addresses), views.seen(addresses)
    level = np.inf  # the smallest equal share of a channel
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        channel.left_each = channel.bandwidth / channel.flows
        level = min(level, channel.left_each)
    hub, bound = NO_HUB, np.inf  # the bound is the smallest equal share of a channel besides the hub
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        if hub == NO_HUB and channel.flows == num_flows and channel.left_each == level:
            hub = seen_channels[i]
        else:
            bound = min(bound, channel.left_each)
    for i in range(num_channels):
        channels[seen_channels[i]].hub = hub
    if hub == NO_HUB:
        return 0.0
    channels[hub].bound = bound
    return level


@core_function("float64", "int64, int64")
def hub_rate(addresses, hub, num_changed):
    """Return the rate of each flow through a hub; 0 if one of the ``num_changed`` channels may now limit flows more."""
    channels, changed = views.channels(addresses), views.changed(addresses)
    hub_channel = channels[hub]
    for i in range(num_changed):
        channel = channels[changed[i]]
        if channel.hub == hub and channel.flows and changed[i] != hub:
            hub_channel.bound = min(hub_channel.bound, channel.bandwidth / channel.flows)
    level = hub_channel.bandwidth / hub_channel.flows
    return level if level <= hub_channel.bound else 0.0


@core_function("void", "int64")
def fill_progressively(addresses, num_channels):
    """Compute the max-min fair rates of flows by progressive filling, as the field ``fair`` of their messages."""
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    seen_channels, links, shift = views.seen(addresses), views.links(addresses), core.shift
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        channel.left, channel.growing = channel.bandwidth, channel.flows
    while num_channels:
        # The rates of the growing flows rise together until the next channel is full.
        level = np.inf
        for i in range(num_channels):
            channel = channels[seen_channels[i]]
            equal_part = channel.left / channel.growing
            channel.left_each = equal_part
            level = min(level, equal_part)
        # Flows on a full channel keep this rate, which is taken from all their channels.
        for i in range(num_channels):
            if channels[seen_channels[i]].left_each == level:
                link = channels[seen_channels[i]].head
                while link >= 0:
                    message_id = link >> shift
                    message = messages[message_id]
                    if message.fair == np.inf:
                        message.fair = level
                        for number in range(message_id << shift, (message_id << shift) + message.hops):
                            channel = channels[links[number].channel]
                            channel.left -= level
                            channel.growing -= 1
                    link = links[link].after
        growing = 0
        for i in range(num_channels):
            if channels[seen_channels[i]].growing:
                seen_channels[growing] = seen_channels[i]
                growing += 1
        num_channels = growing


@core_function("void", "int64, float64")
def set_rates(addresses, num_flows, level):
    """Give the ``num_flows`` flows that were found their rates, and schedule the ends of those that end first.

    ``level`` is the rate of all flows in bytes per second; if it is 0, each flow gets its rate from the field ``fair``.
    """
    core, messages, flow_list = views.core(addresses), views.messages(addresses), views.found(addresses)
    now = core.now
    rounding_s = spacing(now)  # rounding error of a time
    first_end, last_index, several_end_first, number = np.inf, -1, False, core.number
    for i in range(num_flows):
        message = messages[flow_list[i]]
        rate = level if level != 0.0 else message.fair
        old_rate = message.rate
        if rate != old_rate:
            remaining = message.left - (now - message.since) * old_rate
            if remaining <= codes.LEFT_OVER * message.nbytes + rounding_s * old_rate:
                remaining = 0.0
            message.left, message.rate, message.since = remaining, rate, now
            message.end, message.due = now + remaining / rate, 0
            number += 1
            message.key = number
        end = message.end
        if end <= first_end:
            several_end_first = end == first_end
            first_end, last_index = end, i
    core.number = number
    first_index = 0 if several_end_first else last_index  # without equal ends, only the last is looked at
    for i in range(first_index, last_index + 1):
        message = messages[flow_list[i]]
        if message.end == first_end and not message.due:
            message.due = 1
            message.key = push_event(addresses, first_end, codes.NORMAL, message.key, codes.DRAINED, flow_list[i], 0)


@core_function("void")
def settle_rates(addresses):
    """Compute the rates of all flows that are connected with a channel whose flows have changed."""
    core, channels, changed = views.core(addresses), views.channels(addresses), views.changed(addresses)
    num_changed, core.changed, core.settling = core.changed, 0, 0
    core.visit += 1  # marks the flows and channels that were visited
    for i in range(num_changed):
        channels[changed[i]].changed = 0
    for i in range(num_changed):
        channel = channels[changed[i]]
        if channel.visit == core.visit or not channel.flows:  # its flows have new rates, or none is left
            continue
        hub = channel.hub
        if hub != NO_HUB and channels[hub].hub == hub:
            if channels[hub].visit == core.visit:  # the hub's flows have new rates
                continue
            level = hub_rate(addresses, hub, num_changed)
            if level != 0.0:
                num_flows, _ = find_connected_flows(addresses, changed[i], hub)
                channels[hub].visit = core.visit
                set_rates(addresses, num_flows, level)
                continue
        num_flows, num_channels = find_connected_flows(addresses, changed[i], NO_HUB)
        level = find_hub(addresses, num_flows, num_channels)
        if level == 0.0:
            fill_progressively(addresses, num_channels)
        set_rates(addresses, num_flows, level)
