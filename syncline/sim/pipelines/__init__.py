"""Pipelines.

``schedules`` (orders of tasks), ``run`` (as programs), ``report``, ``deadlocks``, ``gradients`` (real math).
"""
