"""The graph of arrays and edges, and backward through it; it knows no Tensor."""
