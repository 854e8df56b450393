"""Flows: the rates of bytes if transfers share channels.

A flow passes all channels of its route at once. Concurrent flows get max-min fair rates. These are computed again
whenever a flow starts or ends, and only for the flows that share channels with it, directly or through others. A flow
alone on its channels needs none of this.

Progressive filling: all rates grow together until a channel is full, whose flows then keep their rates. Shares are
settled after all else of an instant, so equal flows that begin or end together stay equal. Among flows that share, only
those that end first are on the heap, because their end changes the shares of the others.

Often all flows that share pass one channel, which is full first: their *bottleneck*, such as the link of a site. Then
its equal share is the rate of all, and a flow that comes or goes needs no filling. A channel stays the bottleneck under
two conditions. The other channels of each new flow carry no other flow or have the same bottleneck. No other channel
could be full first; ``other_share`` is a lower bound of their equal shares. A channel is a bottleneck as long as it is
its own.

Source: D. Bertsekas, R. Gallager, "Data Networks" (1992), section 6.5.2: max-min fairness and progressive filling.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function, spacing
from syncline.sim.events.core.heap import next_number, push_event

NO_BOTTLENECK = -1


@core_function("void", "int64, int64")
def mark_changed(addresses, channel_number, number):
    """Note that a channel's flows have changed, and schedule one settling of rates per instant, event ``number``."""
    core, channel = views.core(addresses), views.channels(addresses)[channel_number]
    if not core.settling:
        core.settling = 1
        push_event(addresses, core.now, codes.AFTER_ALL, number, codes.SETTLE, 0, 0)
    if not channel.changed:
        channel.changed = 1
        views.changed(addresses)[core.num_changed] = channel_number
        core.num_changed += 1


@core_function("void", "int64, int64")
def update_bottleneck(addresses, first_link, num_links):
    """Keep the bottleneck of the channels of a new flow if all flows on them pass it; else the channels have none.

    The new flow has ``num_links`` links, from ``first_link`` on.
    """
    channels, links = views.channels(addresses), views.links(addresses)
    common, is_common, passes = NO_BOTTLENECK, True, False
    for link in range(first_link, first_link + num_links):
        channel = channels[links[link].channel]
        if channel.flows > 1:
            agrees = common == NO_BOTTLENECK or common == channel.bottleneck  # noqa: PLR1714
            is_common = is_common and agrees and channel.bottleneck != NO_BOTTLENECK
            common = channel.bottleneck
    for link in range(first_link, first_link + num_links):
        passes = passes or (is_common and links[link].channel == common)
    if passes and channels[common].bottleneck == common:
        for link in range(first_link, first_link + num_links):
            channels[links[link].channel].bottleneck = common
    else:
        for link in range(first_link, first_link + num_links):
            channel = channels[links[link].channel]
            if channel.bottleneck != NO_BOTTLENECK:
                channels[channel.bottleneck].bottleneck = NO_BOTTLENECK
            channel.bottleneck = NO_BOTTLENECK


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
    message.bytes_left, message.rate_since_s = message.nbytes, now
    is_alone = True
    if message.nbytes != 0.0:
        for link in range(first_link, first_link + message.hops):
            channel = views.channels(addresses)[links[link].channel]
            if channel.flows:
                is_alone = False
                links[channel.tail].next = link
            else:
                channel.head, channel.bottleneck = link, NO_BOTTLENECK
            links[link].previous, links[link].next = channel.tail, -1
            channel.tail = link
            channel.flows += 1
        message.flowing = 1
    if is_alone:
        message.is_scheduled, message.end = 1, now + message.nbytes / message.rate
        message.key = push_event(addresses, message.end, codes.NORMAL, number, codes.DRAINED, message_id, 0)
    else:
        message.rate, message.is_scheduled, message.key = 0.0, 0, -1  # placeholders until the shares are settled
        update_bottleneck(addresses, first_link, message.hops)
        for link in range(first_link, first_link + message.hops):
            mark_changed(addresses, links[link].channel, number)


@core_function("void", "int64")
def end_flow(addresses, message_id):
    """Remove a message's flow from its channels, once its last byte has left."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    message.is_scheduled = 0
    channels, links = views.channels(addresses), views.links(addresses)
    if not message.flowing:  # a message without bytes is on no channel
        return
    message.flowing = 0
    for number in range(message_id << core.shift, (message_id << core.shift) + message.hops):
        link = links[number]
        channel = channels[link.channel]
        if link.previous >= 0:
            links[link.previous].next = link.next
        else:
            channel.head = link.next
        if link.next >= 0:
            links[link.next].previous = link.previous
        else:
            channel.tail = link.previous
        channel.flows -= 1
        if channel.flows:
            mark_changed(addresses, link.channel, next_number(addresses))


@core_function("UniTuple(int64, 2)", "int64, int64")
def find_connected_flows(addresses, first_channel, bottleneck):
    """Find the flows that are connected with a channel through shared channels, and all channels of these flows.

    Write the flows into the table ``found`` and the channels into ``seen``; return the number of each. If the flows
    have a ``bottleneck``, all pass it, so the search stops there; else it is ``NO_BOTTLENECK``.
    """
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    flow_list, to_visit, seen_channels = views.found(addresses), views.to_visit(addresses), views.seen(addresses)
    links, search, shift = views.links(addresses), core.search_number, core.shift
    channels[first_channel].last_search = search
    to_visit[0], seen_channels[0] = first_channel, first_channel
    num_to_visit, num_flows, num_channels = 1, 0, 1
    while num_to_visit:
        num_to_visit -= 1
        channel_number = to_visit[num_to_visit]
        link = channels[channel_number].head
        if channel_number == bottleneck:
            has_others = num_flows > 0  # flows that were found on other channels must not be listed twice
            while link >= 0:
                message_id = link >> shift
                if not has_others or messages[message_id].last_search != search:
                    flow_list[num_flows] = message_id
                    num_flows += 1
                link = links[link].next
            break
        while link >= 0:
            message_id = link >> shift
            message = messages[message_id]
            if message.last_search != search:
                message.last_search = search
                message.fair_rate = np.inf
                flow_list[num_flows] = message_id
                num_flows += 1
                for number in range(message_id << shift, (message_id << shift) + message.hops):
                    other = links[number].channel
                    if channels[other].last_search != search:
                        channels[other].last_search = search
                        to_visit[num_to_visit] = seen_channels[num_channels] = other
                        num_to_visit += 1
                        num_channels += 1
            link = links[link].next
    return num_flows, num_channels


@core_function("float64", "int64, int64")
def find_bottleneck(addresses, num_flows, num_channels):
    """Find the bottleneck of connected flows; return the rate of each flow, or 0 if they have no bottleneck.

    The bottleneck is the one of their ``num_channels`` channels that carries all ``num_flows`` flows and is full first.
    """
    channels, seen_channels = views.channels(addresses), views.seen(addresses)
    level = np.inf  # the smallest equal share of a channel
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        channel.equal_share = channel.bandwidth / channel.flows
        level = min(level, channel.equal_share)
    bottleneck, other_share = NO_BOTTLENECK, np.inf  # the smallest equal share of the other channels
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        if bottleneck == NO_BOTTLENECK and channel.flows == num_flows and channel.equal_share == level:
            bottleneck = seen_channels[i]
        else:
            other_share = min(other_share, channel.equal_share)
    for i in range(num_channels):
        channels[seen_channels[i]].bottleneck = bottleneck
    if bottleneck == NO_BOTTLENECK:
        return 0.0
    channels[bottleneck].other_share = other_share
    return level


@core_function("float64", "int64, int64")
def bottleneck_rate(addresses, bottleneck, num_changed):
    """Return the rate of each flow through a bottleneck; 0 if a channel whose flows changed may be full before."""
    channels, changed = views.channels(addresses), views.changed(addresses)
    channel_of_all = channels[bottleneck]
    for i in range(num_changed):
        channel = channels[changed[i]]
        if channel.bottleneck == bottleneck and channel.flows and changed[i] != bottleneck:
            channel_of_all.other_share = min(channel_of_all.other_share, channel.bandwidth / channel.flows)
    level = channel_of_all.bandwidth / channel_of_all.flows
    return level if level <= channel_of_all.other_share else 0.0


@core_function("void", "int64")
def fill_progressively(addresses, num_channels):
    """Compute the max-min fair rates of flows by progressive filling, as ``fair_rate`` of their messages."""
    core, channels, messages = views.core(addresses), views.channels(addresses), views.messages(addresses)
    seen_channels, links, shift = views.seen(addresses), views.links(addresses), core.shift
    for i in range(num_channels):
        channel = channels[seen_channels[i]]
        channel.bandwidth_left, channel.growing = channel.bandwidth, channel.flows
    while num_channels:
        # The rates of the growing flows rise together until the next channel is full.
        level = np.inf
        for i in range(num_channels):
            channel = channels[seen_channels[i]]
            equal_share = channel.bandwidth_left / channel.growing
            channel.equal_share = equal_share
            level = min(level, equal_share)
        # Flows on a full channel keep this rate, which is taken from all their channels.
        for i in range(num_channels):
            if channels[seen_channels[i]].equal_share == level:
                link = channels[seen_channels[i]].head
                while link >= 0:
                    message_id = link >> shift
                    message = messages[message_id]
                    if message.fair_rate == np.inf:
                        message.fair_rate = level
                        for number in range(message_id << shift, (message_id << shift) + message.hops):
                            channel = channels[links[number].channel]
                            channel.bandwidth_left -= level
                            channel.growing -= 1
                    link = links[link].next
        growing = 0
        for i in range(num_channels):
            if channels[seen_channels[i]].growing:
                seen_channels[growing] = seen_channels[i]
                growing += 1
        num_channels = growing


@core_function("void", "int64, float64")
def set_rates(addresses, num_flows, level):
    """Give the first ``num_flows`` flows of the table ``found`` their rates, and schedule those that end first.

    ``level`` is the rate of all flows in bytes per second; if it is 0, each flow gets the ``fair_rate`` of its message.
    """
    core, messages, flow_list = views.core(addresses), views.messages(addresses), views.found(addresses)
    now = core.now
    rounding_s = spacing(now)  # rounding error of a time
    first_end, last_index, several_end_first, number = np.inf, -1, False, core.number
    for i in range(num_flows):
        message = messages[flow_list[i]]
        rate = level if level != 0.0 else message.fair_rate
        old_rate = message.rate
        if rate != old_rate:
            remaining = message.bytes_left - (now - message.rate_since_s) * old_rate
            if remaining <= codes.LEFT_OVER * message.nbytes + rounding_s * old_rate:
                remaining = 0.0
            message.bytes_left, message.rate, message.rate_since_s = remaining, rate, now
            message.end, message.is_scheduled = now + remaining / rate, 0
            number += 1
            message.key = number
        end = message.end
        if end <= first_end:
            several_end_first = end == first_end
            first_end, last_index = end, i
    core.number = number
    first_index = 0 if several_end_first else last_index  # of the flows that end first, the last one was found last
    for i in range(first_index, last_index + 1):
        message = messages[flow_list[i]]
        if message.end == first_end and not message.is_scheduled:
            message.is_scheduled = 1
            message.key = push_event(addresses, first_end, codes.NORMAL, message.key, codes.DRAINED, flow_list[i], 0)


@core_function("void")
def settle_rates(addresses):
    """Compute the rates of all flows that are connected with a channel whose flows have changed."""
    core, channels, changed = views.core(addresses), views.channels(addresses), views.changed(addresses)
    num_changed, core.num_changed, core.settling = core.num_changed, 0, 0
    core.search_number += 1  # channels with this number have new rates
    for i in range(num_changed):
        channels[changed[i]].changed = 0
    for i in range(num_changed):
        channel = channels[changed[i]]
        if channel.last_search == core.search_number or not channel.flows:  # done already, or nothing to do
            continue
        bottleneck = channel.bottleneck
        if bottleneck != NO_BOTTLENECK and channels[bottleneck].bottleneck == bottleneck:
            if channels[bottleneck].last_search == core.search_number:  # all its flows have new rates
                continue
            level = bottleneck_rate(addresses, bottleneck, num_changed)
            if level != 0.0:
                num_flows, _ = find_connected_flows(addresses, changed[i], bottleneck)
                channels[bottleneck].last_search = core.search_number
                set_rates(addresses, num_flows, level)
                continue
        num_flows, num_channels = find_connected_flows(addresses, changed[i], NO_BOTTLENECK)
        level = find_bottleneck(addresses, num_flows, num_channels)
        if level == 0.0:
            fill_progressively(addresses, num_channels)
        set_rates(addresses, num_flows, level)
