"""The compiled part of the event simulation.

Read in this order: ``loop``, ``heap``, ``messages`` (the one state machine of every message), ``flows`` (the channels'
shares), ``ranks`` and ``gloo`` (the order of sends), ``collectives`` (the ranks of workers); ``records`` and
``plan_tables`` write tables of many records. ``views`` gives compiled code the tables, and ``compiling`` says how it is
compiled. Only ``compiling`` imports the others: Python calls what `syncline.sim.events.engine` has loaded.
"""
