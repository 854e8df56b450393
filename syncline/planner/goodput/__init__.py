"""``syncline goodput``: the cost of failures and the best checkpoint interval.

Read `question` (the inputs), `expected` (the formulas), `rows` (the rows of results), `tables`; then `goodput` and
`planned`, the goodput of a training that another command plans.
"""
