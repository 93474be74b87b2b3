"""The GPU catalogue and what manifests say about GPUs."""
