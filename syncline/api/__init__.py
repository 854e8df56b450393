"""The commands as functions of Python: what ``import syncline as sl`` offers, and what the commands themselves call.

``trainings`` (compare, run), ``sweeps`` (sweep), ``clocks`` (project, collectives, pipeline), ``processes`` (launch,
calibrate): each function returns a `syncline.api.result.Result`; ``folders`` reads one from a folder again. ``asked``
makes a spec of arguments, ``places`` says where results go. Names for users are listed in ``syncline/__init__.py``.
"""
