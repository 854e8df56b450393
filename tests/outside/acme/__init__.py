"""A package of somebody else's: it adds one thing of each kind to Syncline, by the entry points of its metadata."""
