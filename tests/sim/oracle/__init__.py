"""Event by event: workers run programs over a network whose channels their messages share.

In which order to read: ``run`` (the entry), ``simulation`` (workers and their streams), ``messages`` (the one state
machine of every message), ``ports`` and ``flows`` (what a message passes), ``rank_rounds``, ``ranks`` and ``active``
(collectives), ``gloo`` (those that gloo runs).
"""
