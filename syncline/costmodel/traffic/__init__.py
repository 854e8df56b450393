"""What a method sends, and what a step takes with it.

In which order to read: ``call`` (one communication), ``exchanges`` (what is sent when), ``packing`` (bytes on the
wire), ``overlap`` (beside the computing), ``step_time``, ``papers`` (clocks as papers print them).
"""
