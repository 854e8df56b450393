"""The computing of a worker: hardware, model shapes, kernels, and the work of updates.

Read the modules in this order: ``hardware``, ``tensors``, ``model_shape`` and ``models``; then ``kernel_rates``,
``operations`` and ``transformer_operations`` (a step kernel by kernel), and ``update_work``.
"""
