import time

import requests

started = time.time()
answer = requests.post(
    "http://localhost:8000/v1/chat/completions",
    json={
        "model": "m",
        "messages": [{"role": "user", "content": "Write an essay of five hundred words about the future of kernels."}],
    },
).json()
print(answer["usage"]["completion_tokens"] / (time.time() - started))
