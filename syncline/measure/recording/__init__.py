"""Recording of a user's script: the computation, messages and waits of each of its ranks, while it trains as usual.

Read the modules in this order: ``record`` (the events), ``columns`` (the events as tables), ``recorder`` (the object
that records them), ``operations`` (FLOPs and bytes of computation), ``group`` (a process group that
records calls and forwards them to gloo), ``streams`` (streams on which work is queued), ``hooks`` (functions of torch
that a trace replaces), ``ranks`` (the processes of the script).
"""
