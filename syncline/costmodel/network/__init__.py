"""Networks that connect workers: links, topologies, presets, and their descriptions by users.

Read the modules in this order: ``link`` (alpha and beta of one message), ``paths`` and ``topology`` (the channels that
a message passes), ``two_level`` (nodes), ``sites``, ``level`` and ``multi_level`` (any number of levels), ``graph``
(any other topology), ``tcp`` (the rate that windows and losses allow), ``presets``.
"""
