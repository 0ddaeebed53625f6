"""Array algorithms that NumPy and CuPy do not have: special functions, random bits, blocked sums, einsum."""
