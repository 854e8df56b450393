"""The training of one method and its time on a network: `train_and_time.py` is the entry."""
