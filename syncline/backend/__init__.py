"""Real processes: launching the same training on ``torch.distributed``."""

from syncline.backend.launch import run_processes

__all__ = ["run_processes"]
