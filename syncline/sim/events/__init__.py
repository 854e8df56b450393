"""Event by event: workers run programs over a network whose channels their messages share.

The simulation is compiled. Read in this order: ``run`` (the entry), ``simulation`` (the part in Python: effects,
choices, room, the history) and its ``clock``, ``state`` and ``codes`` (the tables that Python and the core share, and
the numbers in them), ``assembly``, ``vectorised_assembly``, ``names``, ``kinds``, ``plans``, ``routes`` and ``records``
(programs, collectives and routes as records); then the core: ``loop``, ``heap``, ``messages`` (the one state machine of
every message), ``flows`` (the channels' shares), ``ranks`` and ``gloo`` (the order of sends), and ``collectives`` (the
ranks of workers). ``compiled`` says how it is compiled.

All state is records in tables, and everything under way is an event on the heap or a number in a record, so the core
can stop after any instruction and go on. Another kind of step, such as slices that follow each other, is another kind
of message beside those of ``ranks`` and ``gloo``.

Only ``run`` is imported before events run, because importing Numba takes 0.3 s.
"""
