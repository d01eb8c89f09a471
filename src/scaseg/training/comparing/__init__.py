"""Contexts compared: a queue of trainings, their results on disk, and what they prove."""
