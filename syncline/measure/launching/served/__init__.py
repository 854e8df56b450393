"""Trainings of workers at their own pace on real processes: a server, its workers, and their files.

Read `worker` and `server` (the processes), `events` (the server's file, and the simulator's math in the recorded
order), then `launch`.
"""
