"""Palettes, legends and figures of results."""
