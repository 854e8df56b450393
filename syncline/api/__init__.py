"""The commands as Python functions: ``import syncline as sl`` offers them.

``functions`` makes each function of the declaration of its question (`syncline.questions`). The other modules answer
the questions: ``answer_project`` of ``projection`` returns a `syncline.api.result.Result`, which the command prints.
``folders`` reads a result from its folder, ``spec_arguments`` makes the spec of a question, ``places`` chooses the
folder of a result. Names for users are listed in ``syncline/__init__.py``.
"""
