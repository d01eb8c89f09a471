"""Datasets, transforms, loading, validation and preparation."""
