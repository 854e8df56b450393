"""Constants from measurements.

``least_squares`` (the solver), ``link`` (latency and bandwidth), ``gloo`` (its software).
"""
