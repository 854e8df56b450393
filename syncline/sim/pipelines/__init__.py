"""Pipeline-parallel training: schedules, simulation and reports.

``schedules`` (orders of tasks), ``pipeline`` (all that is simulated), ``run`` (as programs), ``array_pipeline`` (as
arrays) and its loop ``compiled``, ``report``, ``deadlocks``, ``gradients`` (real math).
"""
