"""``syncline solve``: the value of a variable at which a projection meets a target.

Reading order: ``targets`` (the targets, and the margin by which a row meets them), ``places`` (the links of a network,
one of which is replaced), ``sought`` (the variable: a bandwidth, a latency, a period, a number of workers), ``tried``
(rows and margins at values of the variable), ``spans`` (the intervals that meet a target, with ends found to a
millionth), ``question`` and ``solved`` (an answer for each method, also in words), ``between_networks`` (the cheapest
of several networks), ``tables``.
"""
