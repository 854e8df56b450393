"""Pipelines in closed form.

The modules are ``closed_form`` (times and bubbles), ``one_f_one_b`` (uneven stages), ``stage_sizes`` (FLOPs, parameters
and activations of a model's stages).
"""
