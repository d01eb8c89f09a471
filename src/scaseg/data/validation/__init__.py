"""Check a dataset before training on it."""
