"""The commands of the shell, a module per kind.

Trainings, real processes, clocks, the catalogue; `shell` holds the parts that they share.
"""
