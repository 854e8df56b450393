"""Records as Chakra execution traces, and back.

Read in this order: ``schema`` (messages and files), ``given`` (a record as nodes), ``taken`` (nodes as a record),
``folders`` (the work of the command).
"""
