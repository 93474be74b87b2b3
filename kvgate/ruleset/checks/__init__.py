"""Typed checks in Python for what a CEL condition cannot say."""
