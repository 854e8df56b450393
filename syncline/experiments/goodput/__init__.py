"""``syncline goodput``: what failures cost, and how often to save. Read `question`, `answered`, then `tables`."""
