"""Advice: the plans by which a cluster can train a model, with their time, cost and uncertainty.

Reading order: ``question`` (the inputs, with defaults), ``plans`` (a method between replicas, a layout inside them),
``search`` (the compositions that are priced with bounds), ``equal_loss`` (tokens to the loss of data parallelism, or
to a target), ``priced`` (rows of plans), ``ties``, ``thresholds`` and ``words`` (the causes of the ranking, and the
changes that would alter it), ``replayed`` (the first plans by events), ``advised`` (the complete advice), ``tables``
(for people).
"""
