"""Networks that connect workers: links, topologies, presets.

Read the modules in this order: ``link`` (alpha and beta of one message), ``paths`` (the channels that a message
passes), ``two_level`` (nodes and sites), ``multi_level`` (any number of levels), ``matrix`` (lines between places),
``graph`` (any other topology), ``tcp`` (the rate that windows and losses allow), ``presets``.
"""
