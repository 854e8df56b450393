"""Pipelines.

``schedules`` (orders of tasks), ``run`` (as programs), ``report``, ``deadlocks``, ``staged`` (real math).
"""
