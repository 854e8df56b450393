"""Majority votes of independent workers: how often they tie, and what they say."""
