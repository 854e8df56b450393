"""A user's description of a cluster, its network and its machines, parsed into the cost model's frozen dataclasses.

Read the modules in this order: ``reading`` (validation of a mapping, with the path of a wrong field; files),
``library_costs`` and ``links``, ``descriptions`` (nodes, sites, graphs), ``networks`` (names, and users' own networks),
``hardware``, ``clusters`` (clusters by name).
"""
