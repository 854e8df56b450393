"""``syncline solve``: what a projection takes to meet a target, rather than whether it does.

In which order to read: ``targets`` (what is to be met, and by how much a row meets it), ``places`` (the links of a
network, one of which is another), ``sought`` (what is varied: a bandwidth, a latency, a period, a number of workers),
``tried`` (rows and margins at values of it), ``spans`` (from where to where a target is met, each end found to a
millionth), ``question`` and ``solved`` (an answer for each method, in words too), ``between_networks`` (the cheapest of
several networks), ``tables``.
"""
