"""Foreign scripts under a simulated clock: the records of scripts, replayed on networks.

Read in this order: ``computing`` and ``programs`` (a record as programs), ``replay`` (simulates a record on a network),
``prices`` (collectives of large groups), ``scenario`` (the network, the hardware and the changes of a replay),
``clocks`` (a replay as a training's clock, losses, the lines of the script that wait), ``rows`` (with bounds),
``sensitivities`` (what decides the step time), ``trace`` (what the commands do, in this process or, with ``apart``, in
a process of its own), ``kept`` and ``named`` (records in folders), ``written`` (the other files of a folder),
``tables``.
"""
