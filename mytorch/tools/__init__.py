"""Tools to inspect models, tensors and graphs. Users import them as `mytorch.utils.<name>`."""
