"""A C module in PyTorch."""
