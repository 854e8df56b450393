"""Clusters that others measured: their constants, and what is predicted of their measurements.

``p3`` (gloo and NCCL on AWS, with delays), ``l40s`` (DDP and DiLoCo over shaped TCP), ``nvlink`` (inside a node).
"""
