import datetime
from string import Template

PAGE = Template(
    "Session started $started, it is now $now.\n"
    "You are a tutor for Spanish. Correct each mistake, explain it in one sentence, and go on with the conversation."
)


def prompt(started):
    return PAGE.substitute(started=started, now=datetime.datetime.now())  # <- volatile


def request(llm, started, history):
    return llm.chat([{"role": "system", "content": prompt(started)}, *history])
