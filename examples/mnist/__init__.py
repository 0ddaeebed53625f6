"""Digit classifiers: a convolutional network and a vision transformer."""
