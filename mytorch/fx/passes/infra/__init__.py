"""The classes of passes over graphs."""
