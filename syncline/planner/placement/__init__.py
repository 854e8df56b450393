"""Placements: which rank of replicated pipelines lies where on a network, by rule or by search.

The modules are ``clock`` (a fast clock of a placement), ``search`` (a local search by this clock) and ``choice`` (the
placement that a spec asks for, timed by the events). Rules are in `syncline.costmodel.layouts.placements`.
"""
