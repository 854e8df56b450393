"""A replica on several workers: tensor, context, data, pipeline and expert parallelism inside it, in closed form.

In which order to read: ``layout`` (how many workers of each, and who they are), ``own_tensors`` (what of a model one of
them has), ``groups`` (collectives of all groups of a kind at once, level by level), ``inside`` (what a step takes).
"""
