"""Closed forms of the cost of collectives, and the choice of an algorithm.

Read in this order: ``algorithms/`` (a file has the rounds and the closed form of an algorithm), ``cost`` (times on a
link), ``hierarchical`` (times on several levels), ``policies`` (the algorithm that a library picks), ``tcp_slow_start``
(the time that TCP adds after idling), and the libraries' algorithms: ``gloo/``, ``nccl/``.
"""
