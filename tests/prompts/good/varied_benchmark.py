import random

from locust import HttpUser, between, task

TOPICS = [line.strip() for line in open("topics.txt")]


class ChatUser(HttpUser):
    wait_time = between(1, 2)

    @task
    def chat(self):
        topic = random.choice(TOPICS)
        self.client.post(
            "/v1/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": f"Write a paragraph about {topic}."}]},
        )
