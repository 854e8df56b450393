"""Sweeps: one training per configuration and seed, each kept in a folder of its own, so that none is repeated.

In the order of the work: ``grid`` makes configurations of a spec and values for its fields; ``identity`` names their
runs; ``runs`` trains them and writes their folders, ``pool`` in several processes; ``folder`` keeps what belongs
together; ``ranking`` says which is best; ``sweep`` is all of it, and ``listener`` is told how far it is.
"""
