"""Trainings of workers at their own pace.

Read `pace`, `workers_apart` (the math), `clock_apart`, then `train_apart`.
"""
