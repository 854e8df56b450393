"""NCCL as it runs.

``costs`` (its pieces, which algorithm), ``sockets`` (its rings and chains over TCP), ``nvlink`` (measured inside nodes,
told for others).
"""
