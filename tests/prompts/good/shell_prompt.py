"""A prompt of a shell, which no model ever sees."""

from datetime import datetime

import click


def prompt_text(user_name, host):
    return f"[{datetime.now():%H:%M:%S}] {user_name}@{host} (type help for a list of all commands of this console) $ "


def loop(user_name, host):
    while True:
        line = click.prompt(prompt_text(user_name, host))
        if line == "exit":
            return
        value = input(f"{datetime.now()} are you sure that you want to run this command on the machine of production? ")
        print(line, value)
