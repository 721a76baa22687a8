"""Classifying private images by features from procedural images: CIFAR-10 at (1, 1e-5)."""
