"""A web page on this machine that shows a small network while it learns: `python -m mytorch.playground`."""
