"""Training methods: one file each, server half and client half side by side."""
