from datetime import datetime

from jinja2 import Environment, FileSystemLoader

env = Environment(loader=FileSystemLoader("templates"))


def system():
    template = env.get_template("assistant.system.jinja2")
    return template.render(stamp=datetime.now().strftime("%H:%M"), company="ACME")


def request(history):
    return [{"role": "system", "content": system()}, *history]
