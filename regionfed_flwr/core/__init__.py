"""The mathematics of regional personalization: pure functions on tensors, without Flower."""
