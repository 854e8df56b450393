"""The same history by recurrences over all workers at once, where no channel is shared out of step.

In which order to read: ``waves`` (the entry), ``plan`` (a collective made ready), ``recurrences`` (a round), ``rings``
(many rounds at once), ``shares`` (channels shared in step), ``gloo_rings``.
"""
