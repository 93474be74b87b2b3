"""A report as text, JSON, SARIF, annotations. Pure functions."""
