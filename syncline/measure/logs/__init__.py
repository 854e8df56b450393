"""Logs that people have: of nccl-tests, communication benchmarks, iperf3 and ping, and tables; one module per format.

Read `logged` first: the shape of a measurement that every format returns. `formats` recognises a file.
"""
