"""Privacy: mechanisms that act on what leaves a user or a region."""
