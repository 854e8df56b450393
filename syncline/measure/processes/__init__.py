"""Real processes: launching the same training on ``torch.distributed``."""
