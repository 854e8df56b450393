"""The command ``python -m syncline.backend``, the former name of `syncline.torchrun`."""

import runpy

runpy.run_module("syncline.torchrun", run_name="__main__", alter_sys=True)
