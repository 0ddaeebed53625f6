"""Small programs that show the library at work: python -m examples.xor."""
