from locust import HttpUser, between, task

QUESTION = "Explain what a KV cache is and why it grows with the length of the prompt."


class ChatUser(HttpUser):
    wait_time = between(1, 2)

    @task
    def chat(self):
        self.client.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "messages": [{"role": "user", "content": QUESTION}],  # <- benchmark
            },
        )
