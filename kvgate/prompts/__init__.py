"""What comes before what in a prompt: Python code by its syntax tree, Jinja templates by Jinja's parser, request logs.

Nothing is imported, run or rendered. vLLM reuses whole blocks of an identical prefix only, so that a byte which changes
near the top of a prompt voids every cached block behind it (vLLM 0.33.0 ``v1/core/kv_cache_utils.py``,
``hash_block_tokens``: a block's hash covers its parent's).
"""
