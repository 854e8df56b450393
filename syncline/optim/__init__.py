"""Optimizers of distributed training: the parts of methods, which compute for all workers at once, and their loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
