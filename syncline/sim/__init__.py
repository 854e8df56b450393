"""The discrete-event simulator: workers that run programs over links, and the clock of a training.

>>> from syncline.costmodel import NETWORKS
>>> from syncline.sim import Call, clock
>>> each_step = [Call(step, "all_reduce", 619 * 2**20) for step in range(10)]
>>> f"{clock(each_step, 3.375, NETWORKS['wan'].network, workers=2, steps=10).step_time_s:.3f}"
'8.618'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
