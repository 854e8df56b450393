"""Loss at scale by published fits, with their ranges, bounds, and marks of extrapolation.

Read the modules in this order: ``laws`` (functional forms, printed losses, fits), ``published`` (the fits of the
package, with their sources), ``predict`` (the loss of a training, and the tokens for a loss), ``relative`` (the ratio
to the loss of data parallelism), ``measured_end`` (the limit of that ratio).
"""
