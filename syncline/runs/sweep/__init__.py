"""Sweeps: one training per configuration and seed, each stored in a separate folder, so that no training is repeated.

In the order of the work: ``grid`` makes configurations of a spec and values for its fields, ``search`` asks for others;
``identity`` names their runs; ``runs`` trains them and makes their files, ``pool`` in several processes,
``dask_cluster`` on several machines; ``folder`` reads and writes the folder of a sweep; ``ranking`` orders the
configurations; ``sweep`` runs all of it, and ``listener`` reports the progress.
"""
