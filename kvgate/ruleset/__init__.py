"""Loads the rules, compiles their conditions, runs them over facts."""
