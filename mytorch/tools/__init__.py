"""Tools to look at models, tensors and graphs. Users import them as `mytorch.utils.<name>`."""
