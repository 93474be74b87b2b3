import datetime
import os

from prompt_toolkit import PromptSession

BANNER = "Everything that is typed here is kept in the audit log of the plant, with the name of the operator. " * 4


def build_prompt(user):
    return f"[{datetime.datetime.now():%H:%M:%S}] {user}@{os.uname().nodename}> "


def system_message():
    return f"opened at {datetime.datetime.now()}\n" + BANNER


def main():
    session = PromptSession()
    print(system_message())
    while session.prompt(build_prompt(os.getlogin())) != "quit":
        pass
