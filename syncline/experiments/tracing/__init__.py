"""A foreign script under a simulated clock: its record replayed on networks.

In which order to read: ``replay`` (a record as programs, and their clock), ``trace`` (what the commands do), ``kept``
(a record in a folder), ``tables``.
"""
