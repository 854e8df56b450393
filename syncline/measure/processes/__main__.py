"""``python -m syncline.measure.processes``: what `syncline.torchrun` is, by the name that it had."""

import runpy

runpy.run_module("syncline.torchrun", run_name="__main__", alter_sys=True)
