"""Foreign scripts under a simulated clock: their records replayed on networks.

In which order to read: ``computing`` and ``programs`` (a record as programs), ``replay`` (what happens), ``prices`` (of
large groups), ``scenario`` (where it is replayed, and what is changed there), ``clocks`` (a replay as a training's
clock, losses, the lines that wait), ``rows`` (with bounds), ``sensitivities`` (what decides), ``trace`` (what the
commands do, here or ``apart``), ``kept`` and ``named`` (records in folders), ``written`` (the other files there),
``tables``.
"""
