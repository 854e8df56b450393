"""Trainings of workers at their own pace.

Read `pace`, `rates`, `one_worker` and `servers` (the math of each), `workers_apart` (of all together), `clock_apart`,
then `train_apart`.
"""
