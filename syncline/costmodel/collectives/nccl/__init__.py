"""The collectives of NCCL, as the library runs them.

``sockets`` has the seconds of its rings and chains over TCP; ``nvlink`` interpolates measured times inside a node.
"""
