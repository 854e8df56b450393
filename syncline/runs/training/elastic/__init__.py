"""Asynchronous trainings, in which workers run at their own pace.

Read `async_clock` (the order of events), `coincident_steps` (workers whose steps form one batch), `async_local_steps`
and `servers` (the math of a worker and of a server), then `async_training` (the math of all together).
`regrouping` is for synchronous groups that re-form when machines fail.
"""
