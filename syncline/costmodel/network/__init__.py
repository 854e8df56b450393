"""What joins workers: links, topologies, presets, and how a user describes them.

In which order to read: ``link`` (alpha and beta of one message), ``paths`` and ``topology`` (which channels a message
passes), ``two_level`` (nodes), ``sites``, ``level`` and ``multi_level`` (any number of levels), ``graph``
(anything else), ``tcp`` (what windows and losses leave), ``presets``.
"""
