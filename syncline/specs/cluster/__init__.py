"""A user's description of a cluster, its network and its machines, parsed into the cost model's frozen dataclasses.

Read the modules in this order: ``reading`` (validation of a mapping, with the path of a wrong field), ``gloo``,
``nccl`` and ``links``, ``networks`` (nodes, sites, graphs; names, and users' own networks), ``hardware``, ``files``
(the file of a cluster), ``clusters`` (clusters by name).
"""
