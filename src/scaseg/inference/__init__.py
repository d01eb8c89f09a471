"""Prediction: whole images, sliding windows, test-time augmentation, folders."""
