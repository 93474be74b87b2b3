"""Prompt-building code by its syntax tree: values are followed through assignments, helpers and returns."""
