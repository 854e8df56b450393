"""``syncline solve``: the value of a variable at which a projection meets a target.

Reading order: ``question`` (the inputs), ``targets`` (the targets, and the margin by which a row meets them),
``link_selection`` (the links of a network, one of which is replaced), ``variables`` (a bandwidth, a latency, a period,
a number of workers), ``evaluations`` (rows and margins at values of the variable, and the spans that meet a target),
``answers`` (one for each method, or the reason for none), ``solver`` (all settings, and the best plan), ``tables``.
"""
