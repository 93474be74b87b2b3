"""What vLLM measures, against what was predicted: logs read, servers started or attached to, a short load."""
