"""What is known of vLLM: flags per release, engine arguments, images, log lines.

``data/flags.json`` and ``data/env.json`` are made from the released wheels by
``.github/scripts/update_release_tables.py``; ``data/replacements.json`` is kept by hand.
"""
