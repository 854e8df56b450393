"""What a worker computes and keeps: hardware, the shapes of models, memory, step times.

In which order to read: ``hardware``, ``models``, ``tensors`` and ``layers``, ``memory``; then what special updates
take (``orthogonal``, ``rotation``), measured ``batch_times``, and ``transformer_time``.
"""
