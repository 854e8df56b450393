"""The replay of recorded scripts on other networks, under a simulated clock.

Read the modules in this order: ``programs`` (a record as programs, and the seconds of its computing), ``replay`` (the
simulation of a record on a network, with prices for collectives of large groups), ``scenario`` (the network, the
hardware and the changes of a replay), ``clocks`` (a replay as a training's clock, losses, the lines of the script that
wait), ``rows`` (results with bounds), ``sensitivities`` and ``links`` (what decides the step time), ``trace`` (the
commands), ``subprocess_trace`` (a trace in a process of its own), ``record_files`` and ``replay_folder`` (the files of
a folder), ``tables``.
"""
