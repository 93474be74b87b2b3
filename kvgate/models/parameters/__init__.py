"""Every parameter of a model as vLLM's modelling code creates it: shapes, sharding, storage format."""
