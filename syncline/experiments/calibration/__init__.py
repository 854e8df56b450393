"""Measuring a machine or a cluster: what is measured, on processes, and the file made of it."""
