"""Predictions held against measurements: published ones of others, and trainings between processes."""
