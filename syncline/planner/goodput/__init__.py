"""``syncline goodput``: the cost of failures and the best checkpoint interval.

Read `question` (the inputs), `answered` (the rows), then `tables`.
"""
