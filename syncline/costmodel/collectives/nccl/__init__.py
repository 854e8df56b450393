"""NCCL as it runs.

``sockets`` (its rings and chains over TCP, pipelined in pieces), ``nvlink`` (what was measured inside nodes).
"""
