"""``syncline goodput``: the cost of failures and the best checkpoint interval.

Read `question` (the inputs), `rows` (the rows of results), then `tables`.
"""
