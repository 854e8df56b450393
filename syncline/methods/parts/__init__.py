"""Specs of the parts of methods: update rules, outer optimizers, compressors, streaming, asynchronous training."""
