"""Loss at scale: what published fits say of it, in which ranges, how sure, and marked where it is extrapolation.

In which order to read: ``laws`` (the forms, and how they are fitted), ``losses`` (what papers measured), ``fits`` (one
with its ranges and errors), ``published`` (those that come with the package, with their sources), ``predict`` (the loss
of a training), ``relative`` (over that of data parallelism), ``inverse`` (the tokens or the model of a loss, the time
to it), ``hyperparameters`` and ``wall_clock`` (what else one of these papers fits and models).
"""
