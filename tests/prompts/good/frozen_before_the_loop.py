from datetime import datetime

from openai import OpenAI


def main():
    client = OpenAI()
    system = (
        f"It is {datetime.now():%H:%M on %A}. You are a text adventure in an old lighthouse. Describe the room, name "
        "the exits, and wait for the next command. Never act for the player."
    )
    messages = [{"role": "system", "content": system}]
    while True:
        text = input("> ")
        if not text:
            break
        messages.append({"role": "user", "content": text})
        reply = client.chat.completions.create(model="m", messages=messages)
        answer = reply.choices[0].message.content
        print(datetime.now().strftime("%H:%M"), answer)
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
