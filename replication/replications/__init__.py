"""Replications: a paper's claims at equal effort, stage by stage, in pieces of one training each.

In the order of the work: ``stages`` makes sweeps of a replication's stages, ``replicate`` trains them as far as its
allowance permits and stores each completed one (``kept``); ``choosing`` picks knobs by the rule that the spec fixes,
``verdicts`` compares losses seed by seed; ``readme`` writes the page of the results.
"""
