"""The replay of recorded scripts on other networks, under a simulated clock.

Read the modules in this order: ``replay`` (a record as programs, and their simulation on a network), ``scenario`` (the
network, the hardware and the changes of a replay), ``clocks`` (a replay as a training's clock, losses, and rows with
bounds), ``bottlenecks`` (what limits the step time), ``trace`` (the commands), ``replay_folder`` (the files of a
folder), ``tables``.
"""
