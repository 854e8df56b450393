"""``syncline goodput``: the cost of failures and the best checkpoint interval.

Read ``question`` (the inputs, the rows of results and their table), then ``goodput`` and ``planned``, the goodput of a
training that another command plans, with the formulas.
"""
