from uuid import uuid4

import requests

PROMPT = "You translate product descriptions from German to English. Keep units, keep brand names, and keep the line breaks."


def translate(text):
    body = {
        "model": "translator",
        "messages": [
            {"role": "system", "content": f"[{uuid4()}] {PROMPT}"},  # <- volatile
            {"role": "user", "content": text},
        ],
    }
    return requests.post("http://vllm:8000/v1/chat/completions", json=body, timeout=60).json()
