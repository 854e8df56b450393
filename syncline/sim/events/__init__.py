"""Event by event: workers run programs over a network whose channels their messages share.

The simulation is compiled. Read in this order: ``run`` (the entry), ``simulation`` (the part in Python: effects,
choices, room, the history), ``state`` and ``codes`` (the tables that Python and the core share, and the numbers in
them), ``assembly``, ``vectorised_assembly``, ``names``, ``kinds`` and ``plans`` (programs, collectives and routes as
records); then the compiled ``core``, which ``engine`` loads.

All state is records in tables, and everything under way is an event on the heap or a number in a record, so the core
can stop after any instruction and go on. Only ``run`` is imported before events run, because loading the
compiled core takes 0.15 s.
"""
