"""Runs gradient formulas over Tensors: second derivatives, forward mode and vmap."""
