from enum import Enum

SYSTEM = "You look after a cluster. Say what you see before you say what you think, and never restart anything. " * 3


class Command(Enum):
    LOGS = "logs"
    EVENTS = "events"


DESCRIPTIONS = {
    Command.LOGS: {"name": "logs", "description": "The last lines of a pod."},
    Command.EVENTS: {"name": "events", "description": "What happened to it."},
}


class Executor:
    def __init__(self, toolsets):
        self.tools_by_name = {}
        for toolset in toolsets:
            for tool in toolset.tools:
                self.tools_by_name[tool.name] = tool

    def schemas(self):
        return [tool.schema() for tool in self.tools_by_name.values()]


def asked(client, executor: Executor, messages):
    by_name = {}
    for tool in executor.toolsets:
        by_name[tool.name] = tool
    own = [tool.schema() for tool in by_name.values()]
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": SYSTEM}, *messages], tools=executor.schemas() + own
    )


def planned(client, messages):
    tools = [{"type": "function", "function": tool} for command, tool in DESCRIPTIONS.items() if command.value]
    return client.chat.completions.create(model="m", messages=messages, tools=tools)
