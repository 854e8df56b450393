"""The computing and memory of a worker: hardware, model shapes, memory, step times.

Read the modules in this order: ``hardware``, ``models``, ``tensors`` and ``layers``, ``memory``; then the work of
matrix updates (``orthogonal``, ``rotation``), measured ``batch_times``, and ``transformer_time``.
"""
