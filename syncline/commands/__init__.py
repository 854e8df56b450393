"""The commands of the shell, a module per kind: trainings, real processes, clocks, the catalogue; `shell` is what they share."""
