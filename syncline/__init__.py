"""Syncline: what talking less often, in fewer bits, or later does to the loss and to the clock.

Importing the package loads neither torch nor NumPy, so that the command line answers at once; its rooms
(``syncline.comm``, ``syncline.optim``, ``syncline.sim``, ...) are imported where they are used.
"""

__version__ = "0.1.0"
