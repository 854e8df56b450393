"""The commands as Python functions: ``import syncline as sl`` offers them, and the commands call them.

``trainings`` (compare, run), ``sweeps`` (sweep), ``clocks`` (project, collectives, pipeline), ``processes`` (launch,
calibrate): each function returns a `syncline.api.result.Result`; ``folders`` reads a result from its folder.
``spec_arguments`` makes a spec from arguments, ``places`` chooses the folder of a result. Names for users are listed in
``syncline/__init__.py``.
"""
