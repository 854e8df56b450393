"""Communicators over the worker axis, wire formats, and the ledger of what was sent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
