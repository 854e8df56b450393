"""Trainings and pipelines on real processes, measured: starting and watching the processes, and their output."""
