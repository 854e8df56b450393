"""Records as Chakra execution traces, and back.

In which order to read: ``schema`` (messages and files), ``given`` (a record as nodes), ``taken`` (nodes as a record),
``folders`` (what the command does).
"""
