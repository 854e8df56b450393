"""What collectives cost in closed form, and which algorithm carries one.

In which order to read: ``algorithms/`` (a file each: its rounds and its closed form), ``cost`` (times on a link),
``hierarchical`` (in two levels), ``policies`` (which one a library picks), ``opening`` (what TCP adds after idling),
``votes``, ``measured`` (from tables), and what libraries run: ``gloo/``, ``nccl/``.
"""
