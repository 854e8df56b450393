"""A replica on several workers: tensor, context, data, pipeline and expert parallelism inside it, in closed form.

Read the modules in this order: ``layout`` (sizes and ranks of the parallel groups), ``own_tensors`` (the shard of a
model on one worker), ``groups`` (collectives of all groups of a kind at once, level by level), ``replica_step``
(seconds of a step).
"""
