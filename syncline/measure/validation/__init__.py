"""Predictions compared with measurements: with published ones, and with trainings between real processes."""
