"""Advice: which plans a cluster can train a model by, in what time, for what money, and how sure that is.

In which order to read: ``question`` (what is asked, and what nobody said), ``plans`` (a method between replicas, a
layout inside them), ``search`` (which of all compositions are priced whole), ``equal_loss`` (tokens to the loss of data
parallelism, or to a target), ``priced`` (rows of plans), ``ties``, ``thresholds`` and ``words`` (what decides, and
what would change it), ``replayed`` (the first plans by events), ``advised`` (all of it), ``tables`` (for people).
"""
