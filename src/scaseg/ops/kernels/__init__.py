"""Triton kernels, beside what they replace; imported only where they run."""
