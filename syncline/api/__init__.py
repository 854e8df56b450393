"""The commands as Python functions, which ``import syncline as sl`` offers.

``functions`` makes the function of each question (`syncline.questions`). The other modules answer the questions:
``answer_project`` of ``projection`` returns a `syncline.api.result.Result`, which the command prints. ``folders`` reads
a result from its folder, ``spec_arguments`` makes the spec of a question. ``syncline/__init__.pyi`` lists the names.
"""
