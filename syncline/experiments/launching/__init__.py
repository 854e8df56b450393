"""Trainings and pipelines on real processes, measured: who starts and watches them, and what they leave."""
