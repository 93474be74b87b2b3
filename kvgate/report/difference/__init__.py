"""A comparison of two states in every format."""
