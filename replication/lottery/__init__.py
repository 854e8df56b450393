"""The equal-effort lottery: how many trials of a search until an order of optimizers is stable.

`setting` reads ``lottery.yaml``, which was written down before the first training; ``__main__`` trains the trials;
`resampling` draws searches of n trials from them.
"""
