from collections import deque


class LoopGuard:
    def __init__(self, llm, window=50):
        self.llm = llm
        self.window = window
        self.tool_name_history = deque()

    def count(self, calls):
        for call in calls:
            self.tool_name_history.append(call["name"])
            while len(self.tool_name_history) > self.window:
                self.tool_name_history.popleft()
        return len(self.tool_name_history)


def price_trend(llm, price_history):
    recent = price_history[-30:]
    return llm.invoke(
        [
            {"role": "system", "content": "You describe how a price went, in one sentence, without advice. " * 4},
            {"role": "user", "content": str(recent)},
        ]
    )


def how_it_feels(llm, mood_history, question):
    recent = mood_history[-5:]
    rules = "You describe how somebody feels, in one sentence, without advice, and never name an illness. " * 4
    return llm.invoke([{"role": "system", "content": rules + str(recent)}, {"role": "user", "content": question}])
