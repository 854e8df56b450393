"""Specs of experiments as frozen data. Reading and projecting a spec does not import torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
