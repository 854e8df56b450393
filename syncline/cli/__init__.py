"""The commands of the shell, a module per kind.

Trainings, real processes, clocks, the catalogue; `shell` is what they share.
"""
