"""``syncline solve``: the value of a variable at which a projection meets a target.

Reading order: ``targets`` (the targets, and the margin by which a row meets them), ``link_selection`` (the links of a
network, one of which is replaced), ``variables`` (a bandwidth, a latency, a period, a number of workers),
``evaluations`` (rows and margins at values of the variable), ``feasible_intervals`` (the intervals that meet a target,
with ends found to a millionth), ``question`` and ``inputs``, ``answers`` (one for each method) and ``infeasibility``
(reasons for no value), ``network_choice`` (the cheapest of several networks), ``any_plan`` (the best plan), ``solver``,
``tables``.
"""
