"""Trainings of workers at their own pace.

Read `pace`, `teams` (whose steps are one batch), `rates`, `one_worker` and `servers` (the math of each),
`workers_apart` (of all together), `clock_apart`, then `train_apart`.
"""
