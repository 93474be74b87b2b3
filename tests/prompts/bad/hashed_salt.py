import hashlib, os
def body(messages):
    return {"model": "m", "messages": messages, "cache_salt": hashlib.sha256(os.urandom(16)).hexdigest()}  # <- cache-salt
