"""Trainings of workers at their own pace on real processes: a server, workers that talk with it, and what they leave.

Read `worker` and `server` (the processes), `events` (what is written down, and read again), `replay` (the simulator in
the order that was), then `launch`.
"""
