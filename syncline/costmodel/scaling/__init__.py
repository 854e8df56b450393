"""Loss at scale by published fits, with their ranges, bounds, and marks of extrapolation.

Read the modules in this order: ``laws`` (the functional forms and their fit), ``losses`` (measurements of papers),
``fits`` (a fit with its ranges and errors), ``published`` (the fits of the package, with their sources), ``predict``
(the loss of a training), ``relative`` (the ratio to the loss of data parallelism), ``inverse`` (the tokens or the model
size for a loss, and the time to it), ``hyperparameters`` (further fits of one paper).
"""
