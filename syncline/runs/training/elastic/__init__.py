"""Asynchronous trainings, in which workers run at their own pace.

Read `pace`, `teams` (workers whose steps form one batch), `rates`, `one_worker` and `servers` (the math of each),
`workers_apart` (the math of all together), `clock_apart`, then `train_apart`.
"""
