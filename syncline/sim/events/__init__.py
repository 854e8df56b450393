"""Event by event: workers run programs over a network whose channels their messages share.

In which order to read: ``run`` (the entry), ``simulation`` (workers and their streams), ``ports`` and ``flows`` (what
messages pass), ``steps``, ``members`` and ``joints`` (collectives), ``posted`` (those of gloo), ``letters``.
"""
