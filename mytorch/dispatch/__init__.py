"""Runs, records and binds operations: what an op is (`record.py`), how it is called (`op.py`), and its names (`bind.py`).

The operations themselves, with their gradients, are defined in `mytorch/ops/`.
"""
