"""Timings side by side: the operator, the block, a training step."""
