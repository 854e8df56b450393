"""Event by event: workers run programs over a network whose channels their messages share.

What happens is compiled. In which order to read: ``run`` (the entry), ``simulation`` (what Python does: effects,
choices, room, the history) and its ``clock``, ``state`` (the tables that Python and the core share), ``assembly``,
``names``, ``plain``, ``kinds``, ``plans``, ``routes`` and ``records`` (programs, collectives and routes as records);
then the core: ``loop``, ``heap``, ``messages`` (the one state machine of every message), ``flows`` (the channels'
shares), ``ranks`` and ``gloo`` (who sends when), and ``collectives`` (whose rank is whose). ``compiled`` says how it
is compiled.

All state is records in tables, and all that is under way is an event on the heap or a number in a record, so the core
can stop after any instruction and go on. Another kind of step, such as slices that follow each other, is another kind
of message beside those of ``ranks`` and ``gloo``.

Nothing but ``run`` is imported before events run: Numba takes 0.3 s.
"""
