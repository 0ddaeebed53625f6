"""Runs, records and binds operations: their definition (`record.py`), calls (`op.py`), and public names (`bind.py`).

The operations and their gradients are defined in the package above, `mytorch/ops/`.
"""
