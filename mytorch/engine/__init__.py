"""The autograd graph, made of raw arrays and edges, and the backward pass. This package does not use Tensors."""
