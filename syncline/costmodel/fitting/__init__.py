"""Constants from measurements.

In which order to read: ``least_squares`` (the solvers), ``timed`` (what was measured), ``gloo`` (its software, with
latency and bandwidth as configured), ``link`` (latency and bandwidth, too).
"""
