"""A local web page that shows the training of a small network: `python -m mytorch.playground`."""
