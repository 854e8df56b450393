"""Constants of the cost model fitted to measurements.

Read the modules in this order: ``least_squares`` (the solvers), ``timed`` (timed collectives), ``gloo`` (costs of
gloo's software, with latency and bandwidth as configured), ``link`` (also fits latency and bandwidth).
"""
