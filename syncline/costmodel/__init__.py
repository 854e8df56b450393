"""The cost model: links, collectives, traffic, hardware and model shapes, in closed form.

The modules need only NumPy, so that a projection starts fast. All functions broadcast by NumPy's rules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
