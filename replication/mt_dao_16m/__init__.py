"""MT-DAO's 16M model as its Table 2 prints it, trained on one GPU by MT-DAO and its baselines."""
