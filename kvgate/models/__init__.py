"""config.json to geometry and weights; where a model is looked up."""
