"""What one GPU does with Syncline's work: ceilings, steps, optimizers, kernels, collectives without a network."""
