"""The traffic of a method, and the time of a training step with that traffic.

Read the modules in this order: ``call`` (one communication), ``exchanges`` (periodic collectives of a method),
``packing`` (bytes on the wire), ``overlap`` (gradient buckets), ``sharded`` (ZeRO and FSDP), ``step_time``.
"""
