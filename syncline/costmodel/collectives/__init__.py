"""What collectives cost in closed form, and which algorithm carries one.

In which order to read: ``algorithms`` (what is on the longest way through each), ``cost`` (their times on a link),
``hierarchical`` (in two levels), ``policies`` (which one a library picks), ``votes``, and ``gloo/``.
"""
