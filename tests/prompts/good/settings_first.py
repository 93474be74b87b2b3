import os
import platform

from myapp.config import settings

VERSION = os.environ.get("APP_VERSION", "dev")


def build_system_prompt(language: str = "en") -> str:
    return (
        f"{settings.BOT_NAME} {VERSION} on {platform.system()} in {os.getenv('REGION', 'eu')}.\n"
        f"Tone: {settings.tone}. You are the assistant of a bank. Never ask for a password or a TAN, and never give "
        "advice on single shares. Point to the branch when a signature is needed."
    )


def messages(question):
    return [{"role": "system", "content": build_system_prompt()}, {"role": "user", "content": question}]
