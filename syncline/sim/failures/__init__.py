"""Training on machines that fail, and its costs; between failures time advances in closed form.

Read `costs` (the costs; steps and checkpoints), `outages` (times of failures; spares, departures and returns), then
`trainings`, three ways in which a training continues: all workers from a checkpoint, the others in a new group, or each
worker by itself.
"""
