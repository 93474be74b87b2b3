class Registry:
    def __init__(self):
        self._tools = {}

    def register(self, tool):
        self._tools[tool.name] = tool

    def schemas(self):
        return [tool.schema() for tool in self._tools.values()]  # <- tool-order


class Agent:
    def __init__(self, client):
        self.client = client
        self.registry = Registry()

    def step(self, messages):
        return self.client.chat.completions.create(
            model="agent",
            messages=messages,
            tools=self.registry.schemas(),
        )
