"""Replications: a paper's claims at equal effort, stage by stage, in pieces of one training each.

In the order of the work: ``stages`` makes sweeps of a replication's stages, ``replicate`` trains them as far as it may
and keeps each whole one (``kept``); ``choosing`` picks knobs by the rule that the spec fixes, ``verdicts`` compares
losses seed by seed; ``readme`` says what came out.
"""
