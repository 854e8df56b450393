"""Trainings in several processes: their start, their progress, and their end."""
