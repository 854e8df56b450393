"""Failures in closed form: their rates, the cost of a checkpoint interval, and the best interval.

Read `rates` (mean times between failures, presets), then `checkpoints`, then `fault_tolerant` (replicas that continue
without failed ones).
"""
