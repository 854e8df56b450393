"""Collectives as rounds of messages: ``rounds`` (who sends what to whom), ``double_tree``, ``alone`` (one, timed)."""
