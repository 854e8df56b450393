"""The same history by recurrences over all workers at once, where no channel is shared out of step.

In which order to read: ``maps`` (the entry), ``routed`` (rounds made ready on a topology), ``recurrences`` (what a
round does), ``rings`` (many rounds at once), ``compiled`` (the same, compiled), ``shares`` (channels shared in step),
``gloo`` and ``nccl`` (what these run).
"""
