"""What is known of vLLM: flags per release, engine arguments, images, log lines."""
