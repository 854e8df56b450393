"""Training on machines that fail, and its costs; between failures time advances in closed form.

Read `outages` (times of failures), `outcome` (the costs), `roster` (spares, departures and returns), `work` (steps and
checkpoints), then three ways in which a training continues: `restarts` (all workers from a checkpoint), `elastic` (the
other workers re-form their group), `independent` (each worker by itself).
"""
