"""Training and timing one method: `train_and_time.py` joins the losses of a training with its clock."""
