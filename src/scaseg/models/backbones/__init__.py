"""Backbones: an image in, a feature map at 1/8 of its size out."""
