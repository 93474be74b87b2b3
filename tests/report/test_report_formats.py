"""Every format: valid against its schema, complete when clean, harmless whatever the files hold."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry, Resource

from kvgate.findings.finding import Finding, Severity
from kvgate.findings.identity import finalise
from kvgate.findings.report import Report
from kvgate.report.escape import excerpt_line, markdown, markdown_code, visible, width, xml
from kvgate.report.render import FORMATS, render_report
from kvgate.report.text import summary_sentence
from kvgate.source.text import SourceFile, Span

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("report_fixtures", HERE / "reports.py")
assert _spec
assert _spec.loader
made = importlib.util.module_from_spec(_spec)
sys.modules["report_fixtures"] = made
_spec.loader.exec_module(made)

SARIF_SCHEMA = json.loads((HERE / "data" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))


def schema(name: str) -> dict[str, Any]:
    return json.loads(files("kvgate.report").joinpath(f"schemas/{name}").read_text(encoding="utf-8"))


def validator(name: str) -> jsonschema.Draft202012Validator:
    inner = schema("kvgate.prediction-1.json")
    registry = Registry().with_resource("kvgate.prediction-1.json", Resource.from_contents(inner))
    return jsonschema.Draft202012Validator(schema(name), registry=registry)


# -- json ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [made.CLEAN, made.FULL], ids=["clean", "full"])
def test_json_is_valid_and_has_exactly_the_keys_of_the_contract(report: Report) -> None:
    data = json.loads(render_report(report, "json"))
    validator("kvgate.report-1.json").validate(data)
    assert list(data) == ["schema", "kvgate", "units", "findings", "unchecked", "summary"]
    assert data["summary"]["findings"] == {
        level: sum(one["severity"] == level for one in data["findings"]) for level in ("error", "warning", "info")
    }


def test_json_of_a_finding_counts_from_one_in_code_points() -> None:
    image = next(one for one in json.loads(render_report(made.FULL, "json"))["findings"] if one["rule"] == made.RULE.id)
    # line 7 is `    image: a😀b:latest`: the value begins in column 12 and has 10 code points
    assert (image["line"], image["column"], image["end_line"], image["end_column"]) == (7, 12, 7, 22)
    assert image["fix"]["edits"] == [
        {"path": "deploy/a b.yaml", "line": 7, "column": 16, "end_line": 7, "end_column": 22, "replacement": "v0.19.1"}
    ]


def test_a_prediction_is_valid_and_infinity_becomes_null() -> None:
    data = made.prediction(None).as_dict()
    validator("kvgate.prediction-1.json").validate(data)
    endless = replace(made.prediction(None).kv_cache, max_concurrency=float("inf"))
    unit = made.unit(prediction=replace(made.prediction(None), kv_cache=endless))
    text = render_report(replace(made.CLEAN, units=(unit,)), "json")
    assert json.loads(text)["units"][0]["prediction"]["kv_cache"]["max_concurrency"] is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"extra": 1}, ""),
        ({"schema": "kvgate.report/2"}, "schema"),
        ({"units": [{}]}, "units"),
        ({"summary": {}}, "summary"),
    ],
)
def test_the_schema_refuses_what_is_not_the_contract(change: dict[str, Any], path: str) -> None:
    data = {**json.loads(render_report(made.CLEAN, "json")), **change}
    error = next(validator("kvgate.report-1.json").iter_errors(data))
    assert list(error.absolute_path)[:1] == ([path] if path else [])


# -- sarif ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [made.CLEAN, made.FULL, replace(made.CLEAN, errors=(made.crash(),))])
def test_sarif_is_valid(report: Report) -> None:
    log = json.loads(render_report(report, "sarif"))
    jsonschema.Draft7Validator(SARIF_SCHEMA).validate(log)
    (run,) = log["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    assert isinstance(run["results"], list)
    assert run["invocations"][0]["executionSuccessful"] is (not report.errors)


def test_sarif_of_a_clean_run_has_an_empty_list_of_results() -> None:
    assert json.loads(render_report(made.CLEAN, "sarif"))["runs"][0]["results"] == []


def test_sarif_says_where_in_code_points_how_severe_and_who_it_is() -> None:
    run = json.loads(render_report(made.FULL, "sarif"))["runs"][0]
    result = next(one for one in run["results"] if one["ruleId"] == made.RULE.id)
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "deploy/a%20b.yaml", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 7, "startColumn": 12, "endLine": 7, "endColumn": 22}
    assert result["level"] == "warning"
    assert result["partialFingerprints"] == {"kvgate/v1": made.FULL.findings[1].fingerprint}
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == made.RULE.id
    assert result["relatedLocations"][0]["message"] == {"text": "used here"}


def test_sarif_lists_rules_with_their_configured_severity() -> None:
    raised = replace(made.RULE, severity=Severity.ERROR)
    run = json.loads(render_report(replace(made.CLEAN, rules={raised.id: raised}), "sarif"))["runs"][0]
    assert run["tool"]["driver"]["rules"][0]["defaultConfiguration"] == {"level": "error"}


# -- github --------------------------------------------------------------------------------------------------------


def test_github_escapes_and_leaves_columns_out_over_several_lines() -> None:
    crashed, wrong, image = render_report(made.FULL, "github").splitlines()
    assert crashed.startswith("::error title=kvgate%3A internal error::the rule other-rule crashed")
    assert wrong.startswith(
        "::error file=deploy/a b.yaml,line=5,endLine=6,title=other-rule::100%25 wrong, see: ::error::"
    )
    assert "\\n" in wrong
    assert "col=" not in wrong
    assert image.startswith(
        "::warning file=deploy/a b.yaml,line=7,col=12,endColumn=22,title=image-not-pinned (compose/vllm)::"
    )
    assert "%0Adeploy/a b.yaml:5: used here%0AName a release." in image


def test_github_of_a_clean_run_is_empty() -> None:
    assert render_report(made.CLEAN, "github") == ""


def test_github_shows_ten_of_a_level_the_most_severe_first_and_counts_the_rest() -> None:
    file = SourceFile("a.yaml", "x\n" * 40)
    many = [
        Finding("r", severity, made.RULE.confidence, "m", Span(file, 2 * at, 2 * at + 1))
        for at, severity in enumerate([Severity.INFO] * 12 + [Severity.ERROR] * 13)
    ]
    lines = render_report(replace(made.CLEAN, findings=finalise(many)), "github").splitlines()
    assert [line.split(" ", 1)[0] for line in lines[:-1]] == ["::error"] * 10 + ["::notice"] * 10
    assert lines[-1].endswith("3 error, 2 info")


# -- gitlab, junit, markdown ---------------------------------------------------------------------------------------


def test_gitlab_has_what_gitlab_asks_for() -> None:
    assert json.loads(render_report(made.CLEAN, "gitlab")) == []
    entries = json.loads(render_report(made.FULL, "gitlab"))
    assert [entry["severity"] for entry in entries] == ["critical", "major"]
    assert entries[1]["location"] == {"path": "deploy/a b.yaml", "lines": {"begin": 7, "end": 7}}
    assert len({entry["fingerprint"] for entry in entries}) == 2


def test_junit_counts_what_it_holds() -> None:
    root = ElementTree.fromstring(render_report(made.FULL, "junit"))
    cases = root.findall("testsuite/testcase")
    assert (int(root.attrib["tests"]), int(root.attrib["failures"]), int(root.attrib["errors"])) == (len(cases), 2, 1)
    # compose/other has no finding and passes
    assert [case.attrib["name"] for case in cases if not list(case)] == ["compose/other"]


def test_junit_of_a_clean_run_has_one_passing_case() -> None:
    root = ElementTree.fromstring(render_report(made.CLEAN, "junit"))
    assert [(case.attrib["name"], list(case)) for case in root.iter("testcase")] == [("nothing to check", [])]


def test_markdown_holds_no_markup_of_the_files() -> None:
    hostile = "@octocat <img src=x> [a](http://b) |x| #1 `c` **d** https://e.example/"
    finding = replace(made.FULL.findings[0], message=hostile)
    text = render_report(replace(made.CLEAN, findings=(finding,)), "markdown")
    assert "<img" not in text
    assert "@octocat" not in text
    assert "[a](http" not in text
    assert "https://e" not in text
    assert "\\#\u20601" in text
    row = render_report(replace(made.CLEAN, units=(made.unit(id="a|b`c", model="x | y"),)), "markdown").splitlines()[4]
    assert row.count("|") - row.count("\\|") == 8  # seven columns


# -- text ----------------------------------------------------------------------------------------------------------


def test_text_has_the_table_the_excerpt_and_the_caret() -> None:
    text = render_report(made.FULL, "text", width=110)
    lines = text.splitlines()
    assert lines[0].split() == ["UNIT", "MODEL", "VLLM", "GPU", "POOL", "TOKENS", "REQUESTS"]
    assert lines[1].split() == ["compose/vllm", "org/model", "0.19.1", "RTX", "4090", "5.00", "GiB", "40,960", "4/20"]
    at = lines.index("7 |     image: a\N{GRINNING FACE}b:latest")
    assert lines[at + 1] == "  |            ^^^^^^^^^^^"  # the emoji takes two columns
    assert "  = unit: compose/vllm" in lines
    assert "  = help: Name a release." in lines
    assert "charts/x.yaml:3: not checked: a Helm chart: render it first" in lines
    assert "131,072 bytes of KV cache per token" in text
    assert "on NVIDIA L4  ~5.00 GiB  ~40,960 tokens  ~2.50 requests of max_model_len 16,384" in text
    assert "    ZeroDivisionError: division by zero" in lines


def test_text_explains_an_info_once_and_any_other_finding_each_time() -> None:
    one = next(finding for finding in made.findings() if finding.remediation)
    infos = [replace(one, severity=Severity.INFO, message=f"note {number}") for number in (1, 2, 3)]
    report = replace(made.CLEAN, findings=(*infos, one, replace(one, message="again")))
    text = render_report(report, "text")
    assert [f"info[{one.rule}] note {number}" in text for number in (1, 2, 3)] == [True] * 3
    assert text.count(f"= help: {one.remediation}") == 3  # of the first info, and of both others
    assert "2 infos are shown without their lines and help; -v shows them whole" in text
    whole = render_report(report, "text", verbose=True)
    assert whole.count(f"= help: {one.remediation}") == 5
    assert "without their lines" not in whole


def test_text_masks_secrets_in_excerpts() -> None:
    assert "sk-secret" not in render_report(made.FULL, "text", verbose=True)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["--api-key sk-1 --port 8000"], "--api-key **** --port 8000"),
        (["- --api-key=sk-1"], "- --api-key=****"),
        (['args: ["--api-key", "sk-1", "--port"]'], 'args: ["--api-key", "****", "--port"]'),
        (["HF_TOKEN: hf_1"], "HF_TOKEN: ****"),
        (["  HF_TOKEN=hf_1 vllm serve"], "  HF_TOKEN=**** vllm serve"),
        (["- --api-key", "- sk-1"], "- ****"),
        (["- name: HF_TOKEN", "  value: hf_1"], "  value: ****"),
        (["env: {name: A}", "- --tokenizer x"], "- --tokenizer x"),
        (["--max-num-batched-tokens 8192"], "--max-num-batched-tokens 8192"),
        (["- {key: nvidia.com/gpu.product}"], "- {key: nvidia.com/gpu.product}"),
        (["HF_TOKEN: ${HF_TOKEN}"], "HF_TOKEN: ${HF_TOKEN}"),
    ],
)
def test_what_is_masked_in_an_excerpt(lines: list[str], shown: str) -> None:
    assert excerpt_line(SourceFile("a", "\n".join(lines)), len(lines)) == shown


def test_text_has_no_control_characters_of_the_files() -> None:
    file = SourceFile("a\x1b[2J.yaml", "x: \x1b]0;owned\x07\u202e\n")
    finding = Finding("r", Severity.ERROR, made.RULE.confidence, "a\x1b[31m\nb", Span(file, 3, 14))
    for form in ("text", "github"):
        text = render_report(replace(made.CLEAN, findings=(finding,), units=(made.unit(id="\x1b[1m"),)), form)
        assert not any(char in text for char in "\x1b\x07\u202e\r")


def test_text_fits_the_width_and_needs_no_colour_library() -> None:
    wide = made.unit(id="Deployment/" + "n" * 80 + "/vllm", model="org/" + "m" * 80)
    text = render_report(replace(made.FULL, units=(wide,)), "text", width=100)
    assert max(width(line) for line in text.splitlines()[:2]) <= 100
    colored = render_report(made.FULL, "text", color=True, width=110)
    assert "\x1b[1;31m" in colored


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (made.CLEAN, "nothing to check: no vLLM server found"),
        (replace(made.CLEAN, units=(made.unit(),)), "1 server checked: no findings"),
        (
            made.FULL,
            "2 servers checked: 1 error, 1 warning; 2 suppressed; 1 place not checked; 1 rule crashed",
        ),
    ],
)
def test_the_summary(report: Report, words: str) -> None:
    assert summary_sentence(report) == words


# -- all of them ---------------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.text(max_size=30))
def test_no_text_of_a_file_breaks_a_format(content: str, name: str) -> None:
    file = SourceFile(name or "a", content)
    finding = Finding("r", Severity.ERROR, made.RULE.confidence, content or "m", Span(file, 0, len(content)), unit=name)
    report = replace(
        made.CLEAN, findings=finalise([finding]), units=(made.unit(id=name, model=content, image=content, origins=()),)
    )
    for form in FORMATS:
        text = render_report(report, form, verbose=True)
        if form == "junit":
            ElementTree.fromstring(text)
        elif form in ("json", "sarif", "gitlab"):
            json.loads(text)
        elif form == "github":
            assert all(line.startswith("::error ") for line in text.split("\n")[:-1])
        else:
            assert all(char.isprintable() or char in "\n\u2060" for char in text)


@given(st.text(max_size=40))
def test_escapes_keep_to_their_format(text: str) -> None:
    assert visible(text).isprintable()
    ElementTree.fromstring(f"<a>{xml(text)}</a>")
    assert "<" not in markdown(text)
    code = markdown_code(text)
    fence = code[: len(code) - len(code.lstrip("`"))]
    assert fence not in code[len(fence) : -len(fence)].strip(" ") or not text


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("see #12", r"#\d"),
        ("org/repo#12", r"#\d"),
        ("&#35;12", r"#\d"),
        ("GH-12 and gh-7", r"(?i)gh-\d"),
        ("@octocat", r"@\w"),
        ("https://example.com", "://"),
        ("www.example.com", r"www\."),
    ],
)
def test_github_links_nothing_of_a_text(text: str, reference: str) -> None:
    """GitHub looks for references in the rendered text, where a backslash of Markdown is gone."""
    assert re.search(reference, text)
    rendered = re.sub(r"\\(?=[^\w\s])", "", markdown(text)).replace("&amp;", "&")
    assert not re.search(reference, rendered)
    assert rendered.replace("\u2060", "") == text


def test_there_is_no_other_format() -> None:
    with pytest.raises(ValueError, match="no format"):
        render_report(made.CLEAN, "yaml")


# -- models whose cache is another one, or none --------------------------------------------------------------------

BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 1536, "vocab_size": 30522, "max_position_embeddings": 512,
}  # fmt: skip
WINDOWS = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
    "max_position_embeddings": 32768, "sliding_window": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
MAMBA = {
    "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 1024, "num_hidden_layers": 8,
    "state_size": 16, "conv_kernel": 4, "intermediate_size": 2048, "vocab_size": 32000, "time_step_rank": 64,
    "torch_dtype": "bfloat16",
}  # fmt: skip
COSTS = {
    "encoder": (BERT, ["no KV cache: each request is computed in one pass, and nothing of it is kept"]),
    # 2 x 8 heads x 128 x 2 bytes x 16 tokens x 32 layers
    "windows": (
        WINDOWS,
        [
            "no more bytes per token once the windows are full (bfloat16); blocks of 16 tokens, 2,097,152 bytes each",
        ],
    ),
    # 8 layers x 2,048 x (16 of the state + 3 of the convolution) x 2 bytes
    "states": (MAMBA, ["a state of 622,592 bytes per request, of whatever length (bfloat16)"]),
}  # fmt: skip


@pytest.mark.parametrize(("model", "lines"), COSTS.values(), ids=list(COSTS))
def test_what_a_request_costs_in_words(model, lines):
    import kvgate
    from kvgate.report.waterfall import pool_cells, render_prediction

    prediction = kvgate.predict(model, gpu="NVIDIA L4", vllm_version="0.19.1")
    text = render_prediction(prediction).split("\n")
    assert [line for line in text if line in lines] == lines
    assert not any(line.startswith("0 bytes") for line in text)
    none = model is BERT
    assert any(line.startswith("= left, unused" if none else "= KV cache") for line in text)
    assert (pool_cells(prediction, "~") == ("none", "none")) == none
    assert pool_cells(None, "~") == ("?", "?")
