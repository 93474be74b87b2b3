"""The arithmetic: KV-cache specs, blocks, budget, concurrency. Pure functions on integers."""
