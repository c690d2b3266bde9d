"""Engines: a grid in this process, and Flower's simulation as a run of one's own."""
