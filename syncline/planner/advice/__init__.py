"""Advice: the plans by which a cluster can train a model, with their time, cost and uncertainty.

Reading order: ``question`` (the inputs, with defaults), ``plans`` (a method between replicas, a layout inside them),
``equal_loss`` (tokens to the loss of data parallelism, or to a target), ``plan_costs`` (rows of plans, and the least of
them by lower bounds), ``search`` (the compositions that are priced with bounds), ``ranking_changes`` (ties and
thresholds), ``sentences`` (the causes of the ranking, the changes that would alter it, and the verdict), ``simulated``
(the first plans by events), ``advice`` (the complete advice), ``tables`` (for the terminal).
"""
