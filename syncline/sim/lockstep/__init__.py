"""The times of the event simulation by recurrences over all workers at once, if no channel is shared out of step.

Read in this order: ``collectives`` (the entry), ``routed`` (rounds on a topology), ``recurrences`` (the effect of
a round), ``rings`` (many rounds at once), ``compiled`` (the same, compiled), ``libraries`` (gloo, NCCL, hivemind).
"""
