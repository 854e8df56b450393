"""Pipelines in closed form.

``closed_form`` (times and bubbles), ``one_f_one_b`` (uneven stages), ``stage_sizes`` (of a model).
"""
