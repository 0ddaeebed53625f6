"""PyTorch programs, run unchanged by both libraries; see test_programs.py."""
