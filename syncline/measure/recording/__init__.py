"""Recording of a user's script: the computation, messages and waits of each of its ranks, while it trains as usual.

Read the modules in this order: ``record`` (the events), ``record_files`` (the events as tables), ``operations`` (FLOPs
and bytes of computation), ``recorder`` (the object that records the events), ``group`` (a process group that records
calls and forwards them to gloo), ``streams`` (streams on which work is queued), ``hooks`` (functions of torch that a
trace replaces), ``ranks`` (the processes of the script), ``shapes`` (the same without values).
"""
