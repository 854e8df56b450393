"""Sweeps: one training per configuration and seed, each in its own folder, so that no training is repeated.

In the order of the work: ``grid`` makes the configurations, or ``search`` proposes them; ``identity`` names their runs;
``jobs`` trains them in several processes or on several machines; ``folder`` reads and writes the folder of a sweep;
``ranking`` orders the configurations; ``sweep`` runs all of it.
"""
