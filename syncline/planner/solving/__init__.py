"""``syncline solve``: the value of a variable at which a projection meets a target.

Reading order: ``targets`` (the targets, and the margin by which a row meets them), ``link_selection`` (the links of a
network, one of which is replaced), ``variables`` (a bandwidth, a latency, a period, a number of workers),
``evaluations`` (rows and margins at values of the variable), ``feasible_intervals`` (the intervals that meet a target,
with ends found to a millionth), ``inputs`` and ``question``, ``answers`` (one for each method) and ``infeasibility``
(why there is none), ``network_choice`` (the cheapest of several networks), ``any_plan`` (over all plans of `advise`),
``solver``, ``tables``.
"""
