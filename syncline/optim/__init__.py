"""The parts of methods: real optimizer math over the worker axis, and the one loop that plays parts together."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
