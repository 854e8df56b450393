"""Simulated collectives: ``rounds`` (of any algorithm, on any network), ``alone`` (the time of one by itself)."""
