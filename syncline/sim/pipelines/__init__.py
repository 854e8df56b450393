"""Pipeline-parallel training: schedules, simulation and reports.

``orders`` and ``schedules`` (orders of tasks), ``pipeline`` (all that is simulated), ``run`` (the simulation) and its
loop ``compiled``, ``report``, ``gradients`` (real math).
"""
