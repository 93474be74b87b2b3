"""Templates by Jinja's parser: order, places, and what stands in other files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.prompts.analysis import read_prompts
from kvgate.prompts.defect import Defect
from kvgate.source.text import SourceFile


def defects(text: str, path: str = "chat_template.jinja") -> list[Defect]:
    return list(read_prompts([SourceFile(path, text)]).defects)


CHAT = """\
{{- '<|im_start|>system\\n' }}
%s
{%%- if tools %%}{{- 'You can call these functions, one at a time:\\n' + (tools | tojson) }}{%% endif %%}
{%%- for message in messages %%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%%- endfor %%}
"""


@pytest.mark.parametrize(
    ("clock", "what", "mild", "at"),
    [
        ("{{- strftime_now('%H:%M:%S') }}", "the time to the second", False, "strftime_now('%H:%M:%S')"),
        ("{{- 'At ' + strftime_now('%d %b %Y %H:%M') + '.' }}", "the time to the minute", False, None),
        ("{{- strftime_now('%d %b %Y') }}", "the date", True, "strftime_now('%d %b %Y')"),
        ("{{- now() }}", "the time to the second", False, "now()"),
        ("{{- now().strftime('%H') }}", "the time to the hour", False, "now().strftime('%H')"),
        ("{{- datetime.now() | string }}", "the time to the second", False, None),
        ("{%- set t = now() %}{{- t.strftime('%Y') }}", "the date", True, None),
        ("{% now 'local', '%d %B %Y' %}", "the date", True, "now 'local', '%d %B %Y'"),
        ("{{- uuid4() }}", "a new UUID", False, "uuid4()"),
        ("{{- ['a', 'b'] | random }}", "a random choice", False, None),
        ("{{- session_id }}", "the id of the session", False, "session_id"),
        ("{{- user_name }}", "text about the user", False, "user_name"),
    ],
)
def test_what_changes_before_the_system_message(clock: str, what: str, mild: bool, at: str | None) -> None:
    (found,) = defects(CHAT % clock)
    assert str(found.values["what"]).startswith(what)
    assert found.mild is mild
    assert found.span.line == 2
    if at is not None:
        assert found.span.text == at


def test_a_constant_date_and_a_clock_behind_everything_are_silent() -> None:
    assert defects(CHAT % "{%- set date_string = '26 Jul 2024' %}{{- date_string }}") == []
    assert defects(CHAT % "" + "{{- strftime_now('%H:%M:%S') }}") == []


def test_macros_are_followed_where_they_are_called() -> None:
    text = "{% macro head(t) %}Now {{ t }}.\n{% endmacro %}" + CHAT % "{{- head(strftime_now('%H:%M')) }}"
    (found,) = defects(text)
    assert found.values["what"] == "the time to the minute"


def test_a_window_over_the_messages() -> None:
    (found,) = defects("{% for message in messages[-6:] %}{{ message.content }}{% endfor %}")
    assert (found.kind, found.span.text) == ("history", "messages[-6:]")
    assert defects("{% for message in messages[1:] %}{{ message.content }}{% endfor %}") == []


def test_reasoning_that_history_does_not_write() -> None:
    loop = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    opened = (
        "{% if add_generation_prompt %}assistant: {% if not enable_thinking %}<think>\n\n</think>{% endif %}{% endif %}"
    )
    (found,) = defects(loop + opened)
    assert (found.kind, found.variant, found.span.text) == ("history", "think", "<think>")
    written = loop.replace("{{ message.content }}", "<think>\n\n</think>{{ message.content }}")
    assert defects(written + opened) == []


def test_tags_of_extensions_are_read() -> None:
    text = (
        '{% message role="system" %}You answer questions about the weather of the day.{% endmessage %}\n'
        '{% message role="user" %}{{ documents }}\nUse what stands above, cite it, do not invent anything, write '
        "at most five sentences, and name the station and the hour of each figure.{% endmessage %}"
    )
    (found,) = defects(text, "ask.jinja")
    assert (found.kind, found.span.text) == ("retrieval", "documents")


def test_places_survive_carriage_returns_and_whitespace_control() -> None:
    text = (CHAT % "{%- if true -%}\n   {{- now() -}}\n{%- endif -%}").replace("\n", "\r\n")
    (found,) = defects(text)
    assert found.span.text == "now()"
    assert found.span.line == 3


def test_a_config_map_is_looked_into() -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: template}\ndata:\n  chat.jinja: |\n"
        "    {{ strftime_now('%H:%M') }}\n"
        "    {% for message in messages %}{{ message.content }}{% endfor %}\n"
    )
    (found,) = defects(text, "configmap.yaml")
    assert (found.span.line, found.span.column, found.span.text) == (6, 8, "strftime_now('%H:%M')")


def test_tokenizer_config_is_looked_into() -> None:
    template = "{{ now() }}\n{% for message in messages %}{{ message.content }}{% endfor %}"
    (found,) = defects(json.dumps({"chat_template": template}), "tokenizer_config.json")
    assert found.span.text == "now()"
    several = {"chat_template": [{"name": "default", "template": template}]}
    assert len(defects(json.dumps(several), "tokenizer_config.json")) == 1


def test_placeholders_of_prompts_in_yaml() -> None:
    text = (
        "assistant:\n  system_prompt: >\n    Current time: {datetime}. You are the assistant of a library. Help\n"
        "    people to find books, to renew loans, and to book rooms. Answer in the language of the question.\n"
    )
    (found,) = defects(text, "values.yaml")
    assert found.span.text == "{datetime}"
    assert defects(text.replace("{datetime}", "{answer_format}"), "values.yaml") == []


@pytest.mark.parametrize("path", ["nginx.conf.j2", "deploy/values.yaml.j2", "mail.html.jinja2"])
def test_templates_of_other_things_are_left_alone(path: str) -> None:
    assert (
        defects("# made at {{ now() }}\n" + "worker_processes auto; pid /run/nginx.pid; user www-data;\n" * 4, path)
        == []
    )


def test_a_broken_template_is_told_at_its_place() -> None:
    (place,) = read_prompts([SourceFile("prompts/a.jinja", "{{ x }}\n{% for %}\n")]).unread
    assert place.span.line == 2
    assert place.reason.startswith("no Jinja template: ")


@pytest.mark.parametrize(
    "text", ["{% a", "{% a %}{% enda", "{% a %}", "{% now", "{% message role='x' %}", "{% b %}{% endb"]
)
def test_open_tags_end(text: str) -> None:
    read_prompts([SourceFile("prompts/x.jinja", text)])


@given(st.text(alphabet="{}%- abfor'now()|[].\n", max_size=60))
def test_no_text_makes_the_reader_crash(text: str) -> None:
    read_prompts([SourceFile("prompts/x.jinja", text)])
