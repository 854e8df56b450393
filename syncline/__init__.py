"""Syncline: the effect of less frequent, compressed or delayed communication on a training's loss and time.

``import syncline as sl`` offers the commands as functions (`sl.compare`, `sl.run`, `sl.project`, ...), which return a
`sl.Result`; see docs/python.md. A name is imported when it is first used, so that importing the package loads neither
torch nor NumPy. Import the subpackages (``syncline.comm``, ``syncline.optim``, ``syncline.sim``, ...) explicitly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
