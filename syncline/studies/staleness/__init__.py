"""Training with late gradients: losses after equal steps, and at what second."""
