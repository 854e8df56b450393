"""Landscapes whose curvature is aligned with the axes or not, walked with late gradients."""
