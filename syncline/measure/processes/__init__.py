"""Real processes that run the same training on ``torch.distributed``."""
