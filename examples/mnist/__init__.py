"""Handwritten digits by convolutions and by attention."""
