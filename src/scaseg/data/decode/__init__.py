"""Decode image, label and .mat files, including hostile ones."""
