"""Closed forms of the cost of collectives, and the choice of an algorithm.

Read in this order: ``algorithms/`` (the rounds and the closed form of each algorithm), ``cost`` (times on a link),
``hierarchical`` (times on several levels), ``placed`` (places with different lines), ``gloo`` and ``nccl`` (the
libraries' own algorithms), ``table`` (all algorithms), ``policies`` (the algorithm that a library picks), ``prices``
(many settings at once), ``tcp_slow_start`` (the time that TCP adds after idling).
"""
