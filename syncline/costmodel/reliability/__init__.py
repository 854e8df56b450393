"""Failures in closed form: how often they come, what a checkpoint interval costs, and which is the best.

Read `rates` (mean times between failures, presets), then `checkpoints`.
"""
