"""NCCL as it runs.

``sockets`` (its rings and chains over TCP, pipelined in pieces), ``nvlink`` (measured inside nodes, told for others).
"""
