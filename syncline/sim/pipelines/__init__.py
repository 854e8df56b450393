"""Pipelines.

``schedules`` (orders of tasks), ``run`` (as programs), ``played`` (as arrays), ``compiled`` (the loop of that),
``report``, ``deadlocks``, ``gradients`` (real math).
"""
