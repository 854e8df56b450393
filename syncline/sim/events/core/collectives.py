"""Collectives under way: the ranks of the workers, and the events at which a worker joins and finishes.

A collective is under way from the first join of a worker until the last of its group is done. A port in serves the
collectives of its stream in the order in which the worker's program names them, even before the program comes to them;
the messages of a collective are known as soon as any worker has joined it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.heap import number, push
from syncline.sim.events.core.messages import advance, gloo_advance, serve

JOINED, DONE = 1, 2


@core_function("void", "int64, int64, float64, float64")
def record(addresses, w, operation, start, nbytes):
    """Record a span that ends now."""
    core = views.core(addresses)
    span = views.spans(addresses)[core.spans]
    core.spans += 1
    span.worker, span.operation, span.start, span.end, span.nbytes = w, operation, start, core.now, nbytes


@core_function("void", "int64, float64")
def complete(addresses, w, nbytes):
    """Complete a worker's current instruction, which held its program until now."""
    worker = views.workers(addresses)[w]
    operation = views.operations(addresses)[worker.operation]
    if not operation.b:
        record(addresses, worker.worker, worker.operation, worker.start, nbytes)
    if operation.effect:
        views.core(addresses).effect = worker.operation
    worker.operation += 1


@core_function("int64", "int64")
def release(addresses, waits):
    """Let all streams that wait for the same go on; return the first of them, which goes on at once."""
    w = waits - 1
    complete(addresses, w, 0.0)
    workers = views.workers(addresses)
    other = workers[w].next
    while other:
        complete(addresses, other - 1, 0.0)
        push(addresses, views.core(addresses).now, codes.NORMAL, number(addresses), codes.GO_ON, other - 1, 0)
        other = workers[other - 1].next
    return w


@core_function("void", "int64, int64")
def note_under_way(addresses, p, i):
    """Note that a collective that a program names is under way."""
    part, instance = views.parts(addresses)[p], views.instances(addresses)[i]
    if part.place < 0:
        return
    part.rank = instance.rank0 + part.place
    rank = views.ranks(addresses)[part.rank]
    rank.part = p
    part.receives = rank.receives > 0 and not rank.gloo and (rank.nccl or views.core(addresses).eager)
    if views.ports(addresses)[part.port].serving == p:
        serve(addresses, part.port)


@core_function("void")
def number_parts(addresses):
    """Give numbers to the collectives that programs have newly named."""
    core, parts, keys, ports = (
        views.core(addresses), views.parts(addresses), views.keys(addresses), views.ports(addresses)
    )  # fmt: skip
    for p in range(core.known_parts, core.parts):
        part = parts[p]
        key, port = keys[part.key], ports[part.port]
        if key.last < 0:
            key.first = p
        else:
            parts[key.last].next_of_key = p
        key.last = p
        if part.numbered:
            if port.last_number >= 0:
                parts[port.last_number].next_number = p
            port.last_number = p
            if port.serving < 0:
                port.serving = p
        if key.instance >= 0 and views.instances(addresses)[key.instance].kind == part.kind:
            note_under_way(addresses, p, key.instance)
    core.known_parts = core.parts


@core_function("boolean", "int64")
def create(addresses, p):
    """Begin a collective with the rank of every worker of its group; return False if there is no room."""
    core, parts, instances = views.core(addresses), views.parts(addresses), views.instances(addresses)
    kind = parts[p].kind
    plan = views.plans(addresses)[kind]
    if plan.free >= 0:
        i = plan.free
        plan.free = instances[i].next
    else:
        if (
            not plan.workers
            or core.instances == core.instance_room
            or core.ranks + plan.workers > core.rank_room
            or core.messages + plan.messages > core.message_room
            or core.slots + plan.total > core.slot_room
            or core.ports + plan.connections > core.port_room
        ):
            return False
        i = core.instances
        new_instance = instances[i]
        new_instance.rank0, new_instance.message0 = core.ranks, core.messages
        new_instance.place0, new_instance.port0 = core.slots, core.ports
        core.instances += 1
        core.ranks += plan.workers
        core.messages += plan.messages
        core.slots += plan.total
        core.ports += plan.connections
        for port in range(new_instance.port0, core.ports):
            views.ports(addresses)[port].head = -1
    instance = instances[i]
    instance.kind, instance.key, instance.left = kind, parts[p].key, plan.workers
    instance.operation, instance.entered = parts[p].operation, 0
    ranks, messages = views.ranks(addresses), views.messages(addresses)
    for place in range(plan.workers):
        place_of_rank, r = views.places(addresses)[plan.rank0 + place], instance.rank0 + place
        rank = ranks[r]
        rank.part, rank.instance, rank.base = -1, i, instance.rank0
        rank.entry, rank.end, rank.send_entry = place_of_rank.entry0, place_of_rank.entry1, place_of_rank.entry0
        rank.turn = rank.send_turn = rank.send_place = rank.queued = rank.unsent = rank.busy = 0
        rank.have = rank.early = rank.admitted = rank.issues = rank.sent = 0
        rank.need, rank.receives, rank.gloo, rank.nccl = codes.FAR, place_of_rank.receives, plan.gloo, plan.nccl
        rank.ahead = plan.ahead
        rank.place0 = instance.place0 + place_of_rank.place0
        if not plan.gloo:
            rank.message = instance.message0 + place
            messages[rank.message].kind, messages[rank.message].sender = codes.OF_RANK, r
    key = views.keys(addresses)[parts[p].key]
    key.instance = i
    other = key.first
    while other >= 0:
        if parts[other].kind == kind and not parts[other].state:
            note_under_way(addresses, other, i)
        other = parts[other].next_of_key
    return True


@core_function("int64", "int64")
def finish(addresses, r):
    """End a worker's part in a collective; return the worker that can go on, or -1."""
    core, rank = views.core(addresses), views.ranks(addresses)[r]
    part, instance = views.parts(addresses)[rank.part], views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[part.kind]
    part.state = DONE
    views.ports(addresses)[part.port].idle_since = core.now
    nbytes = views.places(addresses)[plan.rank0 + part.place].nbytes
    record(addresses, part.worker, part.operation, part.start, nbytes)
    instance.left -= 1
    if not instance.left:
        views.keys(addresses)[part.key].instance = -1
        instance.next = plan.free
        plan.free = rank.instance
    if part.after >= 0:
        push(addresses, core.now, codes.NORMAL, number(addresses), codes.ENTER, part.after, 0)
    if part.waits:
        waits, part.waits = part.waits, 0
        return release(addresses, waits)
    return -1


@core_function("boolean", "int64")
def begin_rounds(addresses, r):
    """Start a rank's first round; return whether the rank has nothing to do."""
    rank = views.ranks(addresses)[r]
    rank.need = 0
    if rank.gloo:
        return gloo_advance(addresses, r)
    return advance(addresses, r)


@core_function("int64", "int64")
def enter(addresses, p):
    """Enter a collective, as the one before it on its stream is done; return the worker that can go on, or -1."""
    core, part = views.core(addresses), views.parts(addresses)[p]
    part.start = core.now
    plan = views.plans(addresses)[part.kind]
    if plan.timed:
        i = views.ranks(addresses)[part.rank].instance
        instance = views.instances(addresses)[i]
        instance.entered += 1
        if instance.entered == plan.workers:
            push(addresses, core.now + plan.duration, codes.NORMAL, number(addresses), codes.TAKEN, i, 0)
        return -1
    call = plan.call
    if plan.openings:
        idle = core.now - views.ports(addresses)[part.port].idle_since
        timeouts = min(int(idle / plan.timeout + plan.near), plan.openings)
        if timeouts:
            call += views.openings(addresses)[plan.opening0 + timeouts - 1]
    if call != 0.0:
        push(addresses, core.now + call, codes.NORMAL, number(addresses), codes.BEGIN, part.rank, 0)
        return -1
    return finish(addresses, part.rank) if begin_rounds(addresses, part.rank) else -1


@core_function("void", "int64")
def finish_all(addresses, i):
    """End a collective with a fixed duration."""
    instance = views.instances(addresses)[i]
    rank0, workers = instance.rank0, instance.left
    for r in range(rank0, rank0 + workers):
        w = finish(addresses, r)
        if w >= 0:
            push(addresses, views.core(addresses).now, codes.NORMAL, number(addresses), codes.GO_ON, w, 0)


@core_function("int64", "int64")
def join(addresses, p):
    """Start a collective when the one before it on its stream is done; return the reason if it cannot start, else 0."""
    core, parts, keys = views.core(addresses), views.parts(addresses), views.keys(addresses)
    part = parts[p]
    key = keys[part.key]
    if key.instance < 0:
        if not create(addresses, p):
            core.kind_without_room = part.kind
            return codes.ROOM
    elif views.instances(addresses)[key.instance].kind != part.kind:
        return codes.DISAGREE
    if part.place < 0:
        return codes.FOREIGN
    port = views.ports(addresses)[part.port]
    part.state = JOINED
    before, port.last_part = port.last_part, p
    if before < 0 or parts[before].state == DONE:
        w = enter(addresses, p)
        if w >= 0:  # all messages had arrived, and another stream waits for this part already
            push(addresses, core.now, codes.NORMAL, number(addresses), codes.GO_ON, w, 0)
    else:
        parts[before].after = p
    return 0
