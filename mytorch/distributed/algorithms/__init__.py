"""What changes how gradients are exchanged, by PyTorch's module paths."""
