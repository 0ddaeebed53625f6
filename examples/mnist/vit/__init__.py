"""A vision transformer."""
