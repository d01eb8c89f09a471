"""Training and evaluation with Lightning."""
