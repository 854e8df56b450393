"""Placements: the position of each rank of replicated pipelines on a network, by rule or by search.

The modules are ``clock`` (a fast clock of a placement), ``search`` (a local search by this clock) and ``choice`` (the
placement that a spec names, timed by the event simulation). Rules are in `syncline.costmodel.layouts.placements`.
"""
