import json
import time
import uuid


def chunk(text, model):
    data = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}],
    }
    return f"data: {json.dumps(data)}\n\n"


def completion(body):
    return {
        "id": f"chatcmpl-{uuid.uuid4()}",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"message": {"role": "assistant", "content": "A long answer that is always the same. " * 20}}],
    }
