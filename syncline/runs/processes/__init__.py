"""Trainings in several processes: forking, sharing progress, ending when the parent ends."""
