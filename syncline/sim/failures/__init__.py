"""Training on machines that fail, and its costs; between failures time advances in closed form.

Read `outages` (times of failures), `outcome` (the costs), `roster` (spares, departures and returns), `work` (steps and
checkpoints), then three ways to go on: `restarts` (all workers from a checkpoint), `elastic` (the other workers go on),
`independent` (each worker by itself).
"""
