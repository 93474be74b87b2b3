"""``kvgate prompts``, and the prompts that ``kvgate check`` looks at because a unit or kvgate.yaml names them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvgate.cli import cli

RULES = "You answer questions about trains, and you never invent a connection. "  # 70 characters
APP = f"""\
from datetime import datetime

RULES = {RULES!r} * 60


def build_messages(question):
    system = f"It is {{datetime.now()}}.\\n{{RULES}}"
    return [{{"role": "system", "content": system}}, {{"role": "user", "content": question}}]
"""
COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.19.1
    command: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384 --kv-cache-memory-bytes 5368709120
"""
CONFIG = """\
version: 1
gpu: NVIDIA GeForce RTX 4090
units:
  - match: {path: "*.yaml"}
    workload: {peak_concurrency: 4, prompt_tokens: 7500, output_tokens: 1000, prompt: "app.py:build_messages"}
"""

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(tree: Path) -> Run:
    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        result = CliRunner().invoke(cli, [*arguments, "--format", "json", "--offline"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, json.loads(result.stdout)

    return call


def write(tree: Path, **files: str) -> None:
    for name, text in files.items():
        path = tree / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def rules_of(report: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    return [(one["rule"], one["severity"], one["path"], one["line"]) for one in report["findings"]]


VOLATILE = ("volatile-text-before-static-prefix", "warning", "app.py", 7)


def test_findings_of_a_folder(tree: Path, run: Run) -> None:
    write(tree, app_DOT_py=APP)
    code, report = run("prompts", ".")
    assert (code, rules_of(report)) == (0, [VOLATILE])
    finding = report["findings"][0]
    assert (finding["column"], finding["end_column"]) == (23, 37)
    assert "about 1,050 tokens of static text (4,202 bytes at 4 bytes a token)" in finding["message"]
    assert run("prompts", ".", "--fail-on", "warning")[0] == 1
    assert run("prompts", ".", "--ignore", "volatile-text-before-static-prefix")[1]["findings"] == []


def test_a_comment_takes_a_finding_away(tree: Path, run: Run) -> None:
    mark = "  # kvgate: ignore[volatile-text-before-static-prefix] one user only"
    write(
        tree,
        app_DOT_py=APP.replace('{RULES}"\n', f'{{RULES}}"{mark}\n').replace('\\n{RULES}"', '\\n{RULES}"' + mark, 1),
    )
    _, report = run("prompts", ".")
    assert report["findings"] == []
    assert report["summary"]["suppressed"] == 1
    write(tree, app_DOT_py="x = 1" + mark + "\n")
    assert [rule for rule, *_ in rules_of(run("prompts", ".")[1])] == ["unused-suppression"]


def test_what_cannot_be_read_is_told(tree: Path, run: Run) -> None:
    write(tree, app_DOT_py="def prompt(:\n    messages = []\n", prompts__a_DOT_jinja="{% if %}\n")
    code, report = run("prompts", ".", "--strict")
    assert code == 1
    assert [(place["path"], place["line"]) for place in report["unchecked"]] == [("app.py", 1), ("prompts/a.jinja", 1)]
    assert run("prompts", ".")[0] == 0


def test_a_path_that_does_not_exist(tree: Path) -> None:
    result = CliRunner().invoke(cli, ["prompts", "nowhere"])
    assert result.exit_code != 0


def test_files_that_git_ignores_are_left_out(tree: Path, run: Run) -> None:
    (tree / ".git").mkdir()
    write(tree, old__app_DOT_py=APP)
    (tree / ".gitignore").write_text("old/\n", encoding="utf-8")
    assert run("prompts", ".")[1]["findings"] == []
    assert rules_of(run("prompts", "old/app.py")[1])[0][0] == VOLATILE[0]


def test_reasoning_field_counts_where_a_server_reads_the_other(tree: Path, run: Run) -> None:
    write(
        tree,
        app_DOT_py="def keep(messages, text, why):\n"
        '    messages.append({"role": "assistant", "content": text, "reasoning_content": why})\n',
    )
    assert [severity for _, severity, *_ in rules_of(run("prompts", ".")[1])] == ["info"]
    write(tree, compose_DOT_yaml=COMPOSE)
    assert [severity for _, severity, *_ in rules_of(run("prompts", ".")[1])] == ["info"]
    write(tree, compose_DOT_yaml=COMPOSE.replace("v0.19.1", "v0.20.0"))
    assert rules_of(run("prompts", ".")[1]) == [("history-rewritten", "warning", "app.py", 2)]


# -- check -----------------------------------------------------------------------------------------------------------


def test_a_linked_prompt_flows_into_the_prediction(tree: Path, run: Run) -> None:
    write(tree, app_DOT_py=APP, compose_DOT_yaml=COMPOSE, kvgate_DOT_yaml=CONFIG)
    _, report = run("check", ".")
    (unit,) = report["units"]
    # before the time stand 6 bytes: one token; 40,960 tokens hold 4 requests of 8,500
    assert unit["prediction"]["workload"]["shared_prefix_tokens"] == 1
    assert unit["prediction"]["concurrency"]["sustained"] == 4
    (finding,) = [one for one in report["findings"] if one["rule"] == VOLATILE[0]]
    # with 1,052 tokens shared (65 blocks of 16), a request needs 532 - 65 blocks of its own: (2,559 - 65) / 467 = 5.3
    assert "one replica of compose.yaml/vllm sustains 5 requests, not 4" in finding["message"]

    moved = APP.replace('f"It is {datetime.now()}.\\n{RULES}"', 'f"{RULES}\\nIt is {datetime.now()}."')
    assert moved != APP
    write(tree, app_DOT_py=moved)
    _, report = run("check", ".")
    # 4,200 + 7 bytes before the time
    assert report["units"][0]["prediction"]["workload"]["shared_prefix_tokens"] == 1051
    assert report["units"][0]["prediction"]["concurrency"]["sustained"] == 5
    assert [one for one in report["findings"] if one["rule"] == VOLATILE[0]] == []


def test_a_declared_prefix_wins_over_the_linked_one(tree: Path, run: Run) -> None:
    config = CONFIG.replace("output_tokens: 1000,", "output_tokens: 1000, shared_prefix_tokens: 640,")
    write(tree, app_DOT_py=APP, compose_DOT_yaml=COMPOSE, kvgate_DOT_yaml=config)
    assert run("check", ".")[1]["units"][0]["prediction"]["workload"]["shared_prefix_tokens"] == 640


def test_a_linked_log_gives_the_load(tree: Path, run: Run) -> None:
    records = [{"prompt": RULES * 60 + f"Question {n}?", "output": "y" * 400} for n in range(20)]
    config = CONFIG.replace("prompt_tokens: 7500, output_tokens: 1000, ", "").replace(
        "app.py:build_messages", "logs/a.jsonl"
    )
    write(tree, compose_DOT_yaml=COMPOSE, kvgate_DOT_yaml=config)
    (tree / "logs").mkdir()
    (tree / "logs/a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    workload = run("check", ".")[1]["units"][0]["prediction"]["workload"]
    # 4,200 + "Question 12?" 12 bytes; in common 4,200 + "Question " 9
    assert workload == {
        "prompt_tokens": 1053,
        "output_tokens": 100,
        "shared_prefix_tokens": 1052,
        "peak_concurrency": 4,
    }


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere.py:build", "nowhere.py: no such file in the tree"),
        ("../app.py:build", "no such file in the tree"),
        ("app.py:other", "no prompt is built there"),
        ("log.jsonl", "no JSON on this line"),
    ],
)
def test_a_link_that_leads_nowhere_is_told(tree: Path, run: Run, reference: str, words: str) -> None:
    write(tree, app_DOT_py=APP, compose_DOT_yaml=COMPOSE, log_DOT_jsonl="{no\n")
    write(tree, kvgate_DOT_yaml=CONFIG.replace("app.py:build_messages", reference))
    _, report = run("check", ".")
    assert [place["reason"] for place in report["unchecked"] if words in place["reason"]]
    assert report["units"][0]["prediction"]["workload"]["shared_prefix_tokens"] == 0


def test_the_chat_template_of_a_unit_is_looked_at(tree: Path, run: Run) -> None:
    template = "{{ strftime_now('%H:%M') }}\n{% for message in messages %}{{ message.content }}{% endfor %}\n"
    command = COMPOSE.replace("--max-model-len", "--chat-template /templates/chat.jinja --max-model-len")
    write(tree, compose_DOT_yaml=command, docker__chat_DOT_jinja=template, docker__other_DOT_jinja=template)
    _, report = run("check", ".")
    found = [one for one in rules_of(report) if one[0] == VOLATILE[0]]
    assert found == [(VOLATILE[0], "warning", "docker/chat.jinja", 1)]
    write(tree, compose_DOT_yaml=COMPOSE)
    assert [one for one in rules_of(run("check", ".")[1]) if one[0] == VOLATILE[0]] == []


def test_check_reads_no_prompts_that_nobody_names(tree: Path, run: Run) -> None:
    write(tree, app_DOT_py=APP, compose_DOT_yaml=COMPOSE)
    assert [one for one in rules_of(run("check", ".")[1]) if one[0] == VOLATILE[0]] == []


# -- request logs ----------------------------------------------------------------------------------------------------


def log_text(count: int = 40) -> str:
    return "".join(
        json.dumps({"prompt": f"Now 12:{minute:02}:09. {RULES * 60}Question {minute}?", "output": "yes"}) + "\n"
        for minute in range(count)
    )


def lines_of(*arguments: str) -> list[str]:
    result = CliRunner().invoke(cli, ["prompts", *arguments, "-q"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout.splitlines()


def test_the_load_of_a_log_is_printed(tree: Path) -> None:
    write(tree, log_DOT_jsonl=log_text())
    assert lines_of("log.jsonl")[:3] == [
        # "Now 12:00:09. " 14 + 4,200 + "Question 39?" 12 bytes
        "log.jsonl: 40 requests, 95th percentile 1,056 prompt and 0 output tokens (4 bytes a token)",
        "  all begin with the same 1 tokens; in blocks of 16 tokens the prefix cache serves 0 of 42,257 prompt tokens "
        "(0.0%)",
        # 39 of 40 requests are served (4 + 1 + 4,200 + 9) // 64 = 65 blocks of 64 bytes: 39 x 1,040 of 42,2xx tokens
        '  40 part at byte 4, at "12:01:09." ("12:00:09." in another), before text that they share; with it at the end '
        "96.0% would be served",
    ]


def test_a_linked_log_is_summed_up_with_the_blocks_of_its_unit(tree: Path) -> None:
    config = CONFIG.replace("app.py:build_messages", "log.jsonl")
    command = COMPOSE.replace("--max-model-len", "--block-size 128 --max-model-len")
    write(tree, log_DOT_jsonl=log_text(), compose_DOT_yaml=command, kvgate_DOT_yaml=config)
    assert "in blocks of 128 tokens" in lines_of("log.jsonl")[1]


def test_a_tokenizer_at_hand_counts_tokens(tree: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from kvgate.prompts.tokens import by_bytes, load_tokenizer

    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tree / "tokenizer.json"))
    counting = load_tokenizer(tree)
    assert (list(counting.encode("a b c a")), counting.per_token, counting.exact) == ([0, 1, 2, 0], 1, True)
    assert load_tokenizer(tree / "nowhere").basis == by_bytes().basis
    (tree / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert not load_tokenizer(tree).exact


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_large_log_the_beginning_is_read(
    tree: Path, run: Run, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("kvgate.manifests.collect.MAX_FILE_BYTES", 40_000)
    monkeypatch.setattr("kvgate.prompts.requests.MAX_LOG_BYTES", 100_000)
    name = "log.jsonl.gz" if packed else "log.jsonl"
    text = log_text().encode()
    (tree / name).write_bytes(gzip.compress(text) if packed else text)
    # a line has 4,2xx bytes: 23 whole lines stand in 100,000 bytes
    shown = lines_of(name)
    assert shown[0].startswith(f"{name}: 23 requests,")
    left = "only the first 0.1 MB are read" if packed else "only the first 0.1 MB of 0.2 MB are read"
    assert f"  {left}" in shown
    code, report = run("prompts", name, "--strict")
    assert code == 1
    assert report["unchecked"] == [{"reason": left, "path": name, "line": 23}]
    (tree / "kvgate.yaml").write_text(CONFIG.replace("app.py:build_messages", name), encoding="utf-8")
    write(tree, compose_DOT_yaml=COMPOSE)
    _, report = run("check", ".")
    assert left in [place["reason"] for place in report["unchecked"]]
    assert VOLATILE[0] in [rule for rule, *_ in rules_of(report)]


def test_a_packed_log_that_is_none_is_told(tree: Path, run: Run) -> None:
    (tree / "log.jsonl.gz").write_bytes(b"\x1f\x8b\x08 no more")
    _, report = run("prompts", "log.jsonl.gz")
    assert [place["reason"].startswith("no log that can be read: ") for place in report["unchecked"]] == [True]


def test_the_cache_of_a_unit_without_one(tree: Path) -> None:
    command = COMPOSE.replace("--max-model-len", "--no-enable-prefix-caching --max-model-len")
    config = CONFIG.replace("app.py:build_messages", "log.jsonl")
    write(tree, log_DOT_jsonl=log_text(), compose_DOT_yaml=command, kvgate_DOT_yaml=config)
    assert "the prefix cache is off, and would serve 0 of" in lines_of("log.jsonl")[1]


def test_script_of_another_language_is_told(tree: Path, run: Run) -> None:
    write(tree, compose_DOT_yaml=COMPOSE, app_DOT_ts="export const messages = () => [];\n")
    write(tree, kvgate_DOT_yaml=CONFIG.replace("app.py:build_messages", "app.ts:messages"))
    _, report = run("check", ".")
    (reason,) = [place["reason"] for place in report["unchecked"]]
    assert reason == (
        "workload.prompt: app.ts: TypeScript is not followed, only Python is; name a log of its requests (JSON lines) "
        "instead"
    )
    code, report = run("prompts", "app.ts", "--strict")
    assert code == 1
    assert report["unchecked"] == [
        {
            "reason": "TypeScript is not followed, only Python is; name a log of its requests (JSON lines) instead",
            "path": "app.ts",
            "line": 1,
        }
    ]


def test_a_date_is_shared_by_the_requests_of_a_day(tree: Path, run: Run) -> None:
    dated = APP.replace("{datetime.now()}", "{datetime.now():%Y-%m-%d}")
    write(tree, app_DOT_py=dated, compose_DOT_yaml=COMPOSE, kvgate_DOT_yaml=CONFIG)
    _, report = run("check", ".")
    # "It is " 6, ".\n" 2 and 4,200 bytes; the date itself is not counted
    assert report["units"][0]["prediction"]["workload"]["shared_prefix_tokens"] == 1052
    assert [one for one in rules_of(report) if one[0] == "shared-prefix-below-block"] == []


def test_what_moving_a_stretch_of_a_log_gives(tree: Path, run: Run) -> None:
    config = CONFIG.replace("prompt_tokens: 7500, output_tokens: 1000", "output_tokens: 1000")
    write(tree, log_DOT_jsonl=log_text(), compose_DOT_yaml=COMPOSE)
    write(tree, kvgate_DOT_yaml=config.replace("app.py:build_messages", "log.jsonl"))
    _, report = run("check", ".")
    (finding,) = [one for one in report["findings"] if one["rule"] == VOLATILE[0]]
    # 1,056 + 1,000 tokens are 129 blocks of 16, and 2,559 blocks hold 19; with 1,051 tokens of text behind the time
    # shared, 1,052 in all or 65 blocks, (2,559 - 65) / (129 - 65) = 38.9
    assert "one replica of compose.yaml/vllm sustains 38 requests, not 19" in finding["message"]


def test_a_crash_over_linked_prompts_is_told(tree: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree, app_DOT_py=APP, compose_DOT_yaml=COMPOSE, kvgate_DOT_yaml=CONFIG)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("kvgate.prompt_files.read_prompts", broken)
    assert run("check", ".")[0] == 3


@pytest.mark.parametrize(
    ("config", "hits"),
    [
        # 39 of 40 requests find (4,200 + 9) // 64 = 65 blocks of 16 tokens
        ("", 39 * 65 * 16),
        # one block less for each
        ('--speculative-config={"method":"eagle3","model":"a/b","num_speculative_tokens":2}', 39 * 64 * 16),
    ],
)
def test_drafts_drop_the_last_block_of_a_hit(tree: Path, config: str, hits: int) -> None:
    log = "".join(json.dumps({"prompt": f"{RULES * 60}Question {index:02}?"}) + "\n" for index in range(40))
    command = COMPOSE.replace("--max-model-len", f"'{config}' --max-model-len" if config else "--max-model-len")
    write(tree, log_DOT_jsonl=log, compose_DOT_yaml=command)
    write(tree, kvgate_DOT_yaml=CONFIG.replace("app.py:build_messages", "log.jsonl"))
    assert f"serves {hits:,} of" in lines_of("log.jsonl")[1]
