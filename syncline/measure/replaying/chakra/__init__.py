"""Records as Chakra execution traces, and back.

Read the modules in this order: ``schema`` (messages and files), ``export`` (a record as nodes), ``load`` (nodes as a
record), ``folders`` (the commands).
"""
