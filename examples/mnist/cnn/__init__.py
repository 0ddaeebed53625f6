"""A convolutional network."""
