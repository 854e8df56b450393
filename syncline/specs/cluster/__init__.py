"""How a user describes a cluster: its network and its machines, parsed into the cost model's frozen dataclasses.

In which order to read: ``reading`` (a mapping against a model, refusals with their paths), ``gloo``, ``nccl`` and
``links``, ``networks`` (nodes, sites, graphs; names, and what users bring), ``hardware``, ``files`` (a cluster's file),
``clusters`` (all of it, by name).
"""
