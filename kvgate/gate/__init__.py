"""Compares two states of a tree: what changed, what it did to the capacity, and whether the gate opens."""
