"""Gloo as it runs.

``costs`` (of its software), ``times`` (of its algorithms), ``wire`` (bytes), ``fields`` (as given).
"""
