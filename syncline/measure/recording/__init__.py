"""Recording a foreign script: what each of its ranks computes, sends and waits for, with its own math.

In which order to read: ``record`` (what is noted), ``columns`` (the same as tables), ``recorder`` (who notes it),
``operations`` and ``optimizers`` (what computing is counted as), ``group`` (a process group that notes calls and passes
data on), ``streams`` (on which work is queued), ``hooks`` (where a script is listened to), ``ranks`` (its processes).
"""
