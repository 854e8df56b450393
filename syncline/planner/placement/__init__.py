"""Placements: which rank of replicated pipelines lies where on a network, by rule or by search.

The modules are ``candidates`` (placements by rule), ``clock`` (a fast clock of a placement) and ``search`` (a local
search by this clock). Users of the search time its candidates in their own clock, and take the fastest.
"""
