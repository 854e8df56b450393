"""Parts of methods as specs: update rules, outer optimizers, compressors, streams. What they build is in ``optim``."""
