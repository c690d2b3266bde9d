"""A Flower and PyTorch app."""
