"""Pipeline-parallel training: schedules, simulation and reports.

``schedules`` (orders of tasks), ``run`` (as programs), ``played`` (as arrays), ``compiled`` (the loop of ``played``),
``report``, ``deadlocks``, ``gradients`` (real math).
"""
