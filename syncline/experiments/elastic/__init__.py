"""Trainings of workers at their own pace.

Read `pace`, `teams` (whose steps are one batch), `workers_apart` (the math), `clock_apart`, then `train_apart`.
"""
