"""A test double of PyTorch: as much of it as starts a worker server."""
