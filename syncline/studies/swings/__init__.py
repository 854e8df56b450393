"""Steps along a network's steepest direction, with late gradients and without."""
