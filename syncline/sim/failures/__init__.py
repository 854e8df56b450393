"""Training on machines that fail, and its costs; between failures time advances in closed form.

Read `outages` (times of failures), `places` (spares and repairs), `outcome` (the costs), then three ways to go on:
`restarts` (all workers from a checkpoint), `reforms` (the other workers go on), `alone` (each worker by itself).
"""
