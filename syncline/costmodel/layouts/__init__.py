"""A replica on several workers: tensor, context, data, pipeline and expert parallelism inside it, in closed form.

Read the modules in this order: ``layout`` (sizes, ranks and placements), ``partition`` (the part of a model on a stage
and on a worker), ``memory``, ``groups`` (traffic of all groups at once), ``replica_step`` and ``pipelines`` (seconds of
a step).
"""
