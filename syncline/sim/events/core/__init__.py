"""The compiled part of the event simulation.

Read in this order: ``loop`` (events and instructions), ``heap`` (the queue of events), ``messages`` (the state machine
of every message, and the order of sends), ``flows`` (the rates on shared channels), ``collectives`` (joining and
finishing), ``fetching`` (of records before their events); ``table_writers`` writes tables of many records. ``views``
gives compiled code the tables, and ``compiling`` says how it is compiled. Only ``compiling`` imports the others: Python
calls what `syncline.sim.events.engine` has loaded.

All functions take ``addresses`` first, the address of the list of the tables' addresses. A number of a record is named
after its table: ``message_id``, ``rank_id``, ``part_id``, ``port_id``, ``stream_id``, ``instance_id``.
"""
