"""Collectives under way, which are called *instances*: the events at which a worker joins and finishes one.

A *part* is a collective that the program of one worker names; a *rank* is the same worker's place in an instance. An
instance exists from the first join of a worker until the last worker of its group is done. A worker's incoming port
serves the collectives of a stream in the order in which the worker's program names them, even before the program comes
to them, because the messages of a collective are known as soon as any worker has joined it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.heap import schedule
from syncline.sim.events.core.messages import advance_gloo_rank, advance_rank, serve_next_part


@core_function("void", "int64, int64, float64, float64")
def record_span(addresses, worker, operation, start, nbytes):
    """Record a span of a worker's timeline that ends now: its operation, its start in seconds, and its bytes."""
    core = views.core(addresses)
    span = views.spans(addresses)[core.spans]
    core.spans += 1
    span.worker, span.operation, span.start, span.end, span.nbytes = worker, operation, start, core.now, nbytes


@core_function("void", "int64, float64")
def complete_instruction(addresses, stream_id, nbytes):
    """Complete a stream's current instruction: record its span up to now, and note its effect for Python."""
    stream = views.streams(addresses)[stream_id]
    operation = views.operations(addresses)[stream.operation]
    if not operation.hidden:
        record_span(addresses, stream.worker, stream.operation, stream.start, nbytes)
    if operation.effect:
        views.core(addresses).effect = stream.operation
    stream.operation += 1


@core_function("int64", "int64")
def release_streams(addresses, first_waiting):
    """Let all streams go on that wait for a collective or mark that is done now.

    They are a list, in which stream i is i + 1 and 0 ends the list; ``first_waiting`` is the first. Return this stream,
    which goes on at once; the others go on by events of this instant.
    """
    stream_id = first_waiting - 1
    complete_instruction(addresses, stream_id, 0.0)
    streams = views.streams(addresses)
    other = streams[stream_id].next_waiting
    while other:
        complete_instruction(addresses, other - 1, 0.0)
        schedule(addresses, 0.0, codes.GO_ON, other - 1)
        other = streams[other - 1].next_waiting
    return stream_id


@core_function("void", "int64, int64")
def link_part_to_instance(addresses, part_id, instance_id):
    """Give a part its rank in a new or present instance of its collective."""
    part, instance = views.parts(addresses)[part_id], views.instances(addresses)[instance_id]
    if part.place < 0:  # the worker is not in the collective's group
        return
    part.rank = instance.rank0 + part.place
    rank = views.ranks(addresses)[part.rank]
    rank.part = part_id
    # By the rendezvous rule and in gloo, no message waits for the incoming port.
    part.receives = rank.receives > 0 and not rank.gloo and (rank.nccl or views.core(addresses).eager)
    if views.ports(addresses)[part.port].serving == part_id:
        serve_next_part(addresses, part.port)


@core_function("void")
def list_new_parts(addresses):
    """Append each part that Python has added to the list of its collective, and to that of its incoming port."""
    core, parts, keys, ports = (
        views.core(addresses), views.parts(addresses), views.keys(addresses), views.ports(addresses)
    )  # fmt: skip
    for part_id in range(core.known_parts, core.parts):
        part = parts[part_id]
        key, port = keys[part.key], ports[part.port]
        if key.last < 0:
            key.first = part_id
        else:
            parts[key.last].next_of_key = part_id
        key.last = part_id
        if part.takes_turn:  # the incoming port serves the collective in its turn
            if port.last_in_turn >= 0:
                parts[port.last_in_turn].next_on_port = part_id
            port.last_in_turn = part_id
            if port.serving < 0:
                port.serving = part_id
        if key.instance >= 0 and views.instances(addresses)[key.instance].kind == part.kind:
            link_part_to_instance(addresses, part_id, key.instance)
    core.known_parts = core.parts


@core_function("int64", "int64")
def allocate_instance(addresses, kind):
    """Return the number of a free or a new record for a collective of this kind; -1 if a table lacks room."""
    core, instances = views.core(addresses), views.instances(addresses)
    plan = views.plans(addresses)[kind]
    if plan.free_instance >= 0:
        instance_id = plan.free_instance
        plan.free_instance = instances[instance_id].next_free
        return instance_id
    if (
        not plan.workers  # Python has not written the kind's plan yet
        or core.instances == core.instance_room
        or core.ranks + plan.workers > core.rank_room
        or core.messages + plan.message_records > core.message_room
        or core.slots + plan.num_messages > core.slot_room
        or core.ports + plan.connections > core.port_room
    ):
        return -1
    instance_id = core.instances
    instance = instances[instance_id]
    instance.rank0, instance.message0 = core.ranks, core.messages
    instance.slot0, instance.port0 = core.slots, core.ports
    core.instances += 1
    core.ranks += plan.workers
    core.messages += plan.message_records
    core.slots += plan.num_messages
    core.ports += plan.connections
    for port_id in range(instance.port0, core.ports):
        views.ports(addresses)[port_id].head = -1  # no message is queued
    return instance_id


@core_function("boolean", "int64")
def create_instance(addresses, part_id):
    """Begin the collective of a part, with a rank for each worker; return False if a table lacks room."""
    parts, ranks, messages = views.parts(addresses), views.ranks(addresses), views.messages(addresses)
    kind = parts[part_id].kind
    plan = views.plans(addresses)[kind]
    instance_id = allocate_instance(addresses, kind)
    if instance_id < 0:
        return False
    instance = views.instances(addresses)[instance_id]
    instance.kind, instance.key, instance.ranks_left = kind, parts[part_id].key, plan.workers
    instance.operation, instance.entered = parts[part_id].operation, 0
    for place in range(plan.workers):
        place_record, rank_id = views.places(addresses)[plan.rank0 + place], instance.rank0 + place
        rank = ranks[rank_id]
        rank.part, rank.instance, rank.rank0 = -1, instance_id, instance.rank0
        rank.entry, rank.end, rank.send_entry = place_record.entry0, place_record.entry1, place_record.entry0
        rank.repetition = rank.send_repetition = rank.queued = rank.unsent = rank.busy = 0
        rank.received = rank.received_early = rank.admitted = rank.issued = rank.departed = 0
        rank.gloo, rank.nccl, rank.receives = plan.gloo, plan.nccl, place_record.receives
        rank.needed = codes.NOT_ENTERED
        rank.ahead, rank.sending = plan.ahead, place_record.send0
        rank.slot0 = instance.slot0 + place_record.slot0
        if not plan.gloo:
            rank.message = instance.message0 + place
            messages[rank.message].kind, messages[rank.message].sender = codes.OF_RANK, rank_id
    key = views.keys(addresses)[parts[part_id].key]
    key.instance = instance_id
    other_part = key.first
    while other_part >= 0:
        if parts[other_part].kind == kind and not parts[other_part].state:
            link_part_to_instance(addresses, other_part, instance_id)
        other_part = parts[other_part].next_of_key
    return True


@core_function("int64", "int64")
def finish_rank(addresses, rank_id):
    """End a worker's part in a collective, its rank; return a stream that waited for this and can go on, or -1."""
    core, rank = views.core(addresses), views.ranks(addresses)[rank_id]
    part, instance = views.parts(addresses)[rank.part], views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[part.kind]
    part.state = codes.PART_DONE
    views.ports(addresses)[part.port].idle_since = core.now
    nbytes = views.places(addresses)[plan.rank0 + part.place].nbytes
    record_span(addresses, part.worker, part.operation, part.start, nbytes)
    instance.ranks_left -= 1
    if not instance.ranks_left:  # all workers are done, so the record is free for the next collective of this kind
        views.keys(addresses)[part.key].instance = -1
        instance.next_free = plan.free_instance
        plan.free_instance = rank.instance
    if part.next_on_stream >= 0:  # the worker has joined the next collective of this network stream
        schedule(addresses, 0.0, codes.ENTER, part.next_on_stream)
    if part.first_waiting:
        first_waiting, part.first_waiting = part.first_waiting, 0
        return release_streams(addresses, first_waiting)
    return -1


@core_function("boolean", "int64")
def begin_rounds(addresses, rank_id):
    """Start a rank's first round; return whether the rank is done already, without messages."""
    rank = views.ranks(addresses)[rank_id]
    rank.needed = 0
    if rank.gloo:
        return advance_gloo_rank(addresses, rank_id)
    return advance_rank(addresses, rank_id)


@core_function("int64", "int64")
def enter_collective(addresses, part_id):
    """Let a worker enter a collective; its previous one on the network stream is done.

    Return the stream that can go on if this part is done at once, or -1.
    """
    core, part = views.core(addresses), views.parts(addresses)[part_id]
    part.start = core.now
    plan = views.plans(addresses)[part.kind]
    if plan.has_fixed_duration:  # the fixed duration begins when the last worker enters
        instance_id = views.ranks(addresses)[part.rank].instance
        instance = views.instances(addresses)[instance_id]
        instance.entered += 1
        if instance.entered == plan.workers:
            schedule(addresses, plan.duration_s, codes.DURATION_OVER, instance_id)
        return -1
    delay_s = plan.call_s  # the time of the library's software per call
    if plan.openings:  # TCP windows shrink at each timeout of an idle connection, and have to open again
        idle_s = core.now - views.ports(addresses)[part.port].idle_since
        timeouts = min(int(idle_s / plan.timeout_s + plan.timeout_tolerance), plan.openings)
        if timeouts:
            delay_s += views.openings(addresses)[plan.opening0 + timeouts - 1]
    if delay_s != 0.0:
        schedule(addresses, delay_s, codes.BEGIN, part.rank)
        return -1
    return finish_rank(addresses, part.rank) if begin_rounds(addresses, part.rank) else -1


@core_function("void", "int64")
def finish_all_ranks(addresses, instance_id):
    """End a collective whose duration is fixed, for all its workers."""
    instance = views.instances(addresses)[instance_id]
    rank0, workers = instance.rank0, instance.ranks_left
    for rank_id in range(rank0, rank0 + workers):
        stream_id = finish_rank(addresses, rank_id)
        if stream_id >= 0:
            schedule(addresses, 0.0, codes.GO_ON, stream_id)


@core_function("int64", "int64")
def join_collective(addresses, part_id):
    """Let a worker join a collective; it enters once its previous one on the network stream is done.

    Return the reason why the program cannot join (a code), or 0.
    """
    core, parts, keys = views.core(addresses), views.parts(addresses), views.keys(addresses)
    part = parts[part_id]
    key = keys[part.key]
    if key.instance < 0:
        if not create_instance(addresses, part_id):
            core.kind_without_room = part.kind
            return codes.ROOM
    elif views.instances(addresses)[key.instance].kind != part.kind:  # the first worker joined another kind
        return codes.DISAGREE
    if part.place < 0:  # the worker is not in the collective's group
        return codes.FOREIGN
    port = views.ports(addresses)[part.port]
    part.state = codes.PART_JOINED
    previous_part, port.last_joined = port.last_joined, part_id
    if previous_part < 0 or parts[previous_part].state == codes.PART_DONE:
        stream_id = enter_collective(addresses, part_id)
        if stream_id >= 0:  # another stream waited for this part
            schedule(addresses, 0.0, codes.GO_ON, stream_id)
    else:
        parts[previous_part].next_on_stream = part_id
    return 0
