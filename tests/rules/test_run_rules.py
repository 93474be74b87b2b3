"""Running rules: which run, what a crash costs, how severities are configured, what suppressions do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.app import CheckOptions, check_paths
from kvgate.config import RuleConfig
from kvgate.findings.finding import Finding, Severity
from kvgate.findings.report import Report
from kvgate.ruleset import checks as checks_module
from kvgate.ruleset.checks import Check
from kvgate.ruleset.load import RuleSet, load_rules
from kvgate.ruleset.model import RuleError
from kvgate.ruleset.run import Selection, select_rules
from kvgate.source.text import SourceFile, Span

RULES = load_rules()
SPAN = Span(SourceFile("kvgate.yaml", "rules:"), 0, 5)

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.19.1
      args:
        - --model=Qwen/Qwen2.5-7B-Instruct
        - --max-model-len=8192
        - --swap-space=4
        - --tensor-parallel-size=2
      resources: {limits: {nvidia.com/gpu: 1}}
"""
USER_RULE = """\
id: too-many-replicas
title: Many replicas
family: ours
severity: error
confidence: high
status: stable
since: 0.1.0
when: %s
at: replicas
message: "{unit.replicas} replicas"
remediation: Take fewer.
why: They cost.
"""


def check(folder: Path, manifest: str = MANIFEST, config: str = "version: 1\n", **options: object) -> Report:
    (folder / "pod.yaml").write_text(manifest, encoding="utf-8")
    (folder / "kvgate.yaml").write_text(config, encoding="utf-8")
    return check_paths([folder], CheckOptions(config=folder / "kvgate.yaml", **options))  # type: ignore[arg-type]


def of_rule(report: Report, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


# -- selection -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "runs", "rests"),
    [
        (Selection(), {"image-not-pinned", "unknown-gpu"}, {"abbreviated-engine-flag", "suppression-without-reason"}),
        (Selection(preview=True), {"abbreviated-engine-flag"}, {"suppression-without-reason"}),
        (Selection(profile="all"), {"suppression-without-reason"}, {"abbreviated-engine-flag"}),
        (Selection(select=("version",)), {"image-not-pinned"}, {"unknown-gpu"}),
        (Selection(select=("unknown-gpu",)), {"unknown-gpu"}, {"image-not-pinned"}),
        (Selection(select=("suppression-without-reason",)), {"suppression-without-reason"}, {"unknown-gpu"}),
        (Selection(ignore=("version", "unknown-gpu")), {"unresolved-model"}, {"image-not-pinned", "unknown-gpu"}),
        (Selection(config={"unknown-gpu": RuleConfig(SPAN, off=True)}), {"unresolved-model"}, {"unknown-gpu"}),
    ],
)  # fmt: skip
def test_which_rules_run(selection: Selection, runs: set[str], rests: set[str]) -> None:
    found = set(select_rules(RULES, selection))
    assert runs <= found
    assert not rests & found


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(select=("imagenot-pinned",)), 'did you mean "image-not-pinned"'),
        (Selection(ignore=("nonsense",)), "`kvgate rules` lists them"),
        (Selection(config={"nonsense": RuleConfig(SPAN)}), "kvgate.yaml:1:1"),
        (Selection(select=("abbreviated-engine-flag",)), "add --preview"),
    ],
)
def test_a_name_that_is_no_rule_is_refused(selection: Selection, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        select_rules(RULES, selection)
    assert words in str(caught.value)


def test_a_configured_severity_is_the_ceiling() -> None:
    config = {
        "image-not-pinned": RuleConfig(SPAN, severity="error"),
        "unknown-engine-flag": RuleConfig(SPAN, severity="info"),
    }
    selected = select_rules(RULES, Selection(config=config))
    assert selected["image-not-pinned"][1] is Severity.ERROR
    assert selected["unknown-engine-flag"][1] is Severity.INFO


def test_kvgate_yaml_changes_severities_and_switches_off(tmp_path: Path) -> None:
    config = "version: 1\nrules: {unknown-engine-flag: warning, gpu-count-mismatch: off}\n"
    report = check(tmp_path, config=config)
    assert [one.severity for one in of_rule(report, "unknown-engine-flag")] == [Severity.WARNING]
    assert not of_rule(report, "gpu-count-mismatch")
    assert report.rules["unknown-engine-flag"].severity is Severity.WARNING


# -- places --------------------------------------------------------------------------------------------------------


def test_findings_point_at_what_must_change_with_the_other_place_beside_it(tmp_path: Path) -> None:
    report = check(tmp_path)
    (flag,) = of_rule(report, "unknown-engine-flag")
    (count,) = of_rule(report, "gpu-count-mismatch")
    (shared,) = of_rule(report, "shm-missing-with-parallelism")
    # `        - --swap-space=4` is line 11, the flag begins in column 11
    assert (flag.primary.path, flag.primary.line, flag.primary.column) == ("pod.yaml", 11, 11)
    assert (count.primary.line, [place.span.line for place in count.related]) == (12, [13])
    assert (shared.primary.line, shared.primary.text) == (6, "- name: vllm")
    assert {one.unit for one in (flag, count, shared)} == {"Pod/default/chat/vllm"}
    assert flag.message.endswith("(the release: pod.yaml:7)")


# -- suppressions --------------------------------------------------------------------------------------------------


def test_suppressions_on_the_line_above_it_and_on_the_unit(tmp_path: Path) -> None:
    manifest = MANIFEST.replace(
        "- name: vllm", "- name: vllm  # kvgate: ignore[gpu-count-mismatch, image-not-pinned] mig"
    )
    manifest = manifest.replace(
        "        - --swap", "        # kvgate: ignore[unknown-engine-flag] old image\n        - --swap"
    )
    report = check(tmp_path, manifest)
    assert not of_rule(report, "unknown-engine-flag")
    assert not of_rule(report, "gpu-count-mismatch")
    assert report.suppressed == 2
    (unused,) = of_rule(report, "unused-suppression")
    assert unused.primary.text == "image-not-pinned"


def test_a_suppression_of_a_rule_that_did_not_run_is_not_called_unused(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("- name: vllm", "- name: vllm  # kvgate: ignore[image-not-pinned] later")
    assert not of_rule(check(tmp_path, manifest, ignore=("image-not-pinned",)), "unused-suppression")


# -- crashes and users' rules --------------------------------------------------------------------------------------


def test_a_crash_in_one_rule_is_located_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(case: object, params: object) -> list[object]:
        raise ZeroDivisionError("in the check")

    known = dict(checks_module.checks())
    broken = Check("gpu-count", crash, known["gpu-count"].params, (), "unit", "")  # type: ignore[arg-type]
    monkeypatch.setitem(checks_module.checks(), "gpu-count", broken)  # type: ignore[arg-type]
    report = check(tmp_path)
    (error,) = report.errors
    assert (error.rule, error.unit) == ("gpu-count-mismatch", "Pod/default/chat/vllm")
    assert error.where is not None
    assert (error.where.path, error.where.line) == ("pod.yaml", 6)
    assert "ZeroDivisionError: in the check" in error.traceback
    assert of_rule(report, "unknown-engine-flag")


def test_users_rules_run_beside_the_built_in_ones(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "too-many-replicas.yaml").write_text(USER_RULE % "unit.replicas >= 1 && args.max_model_len == 8192")
    report = check(tmp_path, select=("ours",))
    (finding,) = report.findings
    assert (finding.rule, finding.message, finding.severity) == ("too-many-replicas", "1 replicas", Severity.ERROR)


def test_a_condition_that_overflows_is_an_internal_error_of_its_rule(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "too-many-replicas.yaml").write_text(USER_RULE % "(unit.replicas + 8) * 9223372036854775807 > 1")
    report = check(tmp_path, select=("ours",))
    assert [error.rule for error in report.errors] == ["too-many-replicas"]
    assert "overflow" in report.errors[0].traceback


def test_a_flag_that_the_files_do_not_determine_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "too-many-replicas.yaml").write_text(
        USER_RULE % "args.max_model_len == null || args.max_model_len < 9000"
    )
    manifest = MANIFEST.replace("--max-model-len=8192", "--max-model-len=$(LENGTH)")
    assert not check(tmp_path, manifest, select=("ours",)).findings
    assert check(tmp_path, select=("ours",)).findings


def test_words_that_hide_flags_make_an_absence_only_possible(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "too-many-replicas.yaml").write_text(USER_RULE % "args.enforce_eager == null")
    start = 'command: [sh, -c, "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 $EXTRA"]'
    manifest = MANIFEST[: MANIFEST.index("args:")] + start + "\n"
    (hidden,) = check(tmp_path, manifest, select=("ours",)).findings
    (plain,) = check(tmp_path, select=("ours",)).findings
    assert (hidden.severity, plain.severity) == (Severity.INFO, Severity.ERROR)


def test_loading_without_looking_closely_gives_the_same_rules() -> None:
    quick, close = load_rules(thorough=False), load_rules()
    assert isinstance(quick, RuleSet)
    assert list(quick.rules) == list(close.rules)
    for name, rule in close.rules.items():
        other = quick.rules[name]
        assert (other.message, other.variants, other.remediation, other.params) == (
            rule.message, rule.variants, rule.remediation, rule.params,
        )  # fmt: skip
        if rule.condition is not None:
            assert other.condition is not None
            assert other.condition.names == rule.condition.names


# -- options -------------------------------------------------------------------------------------------------------


def probed(budget: int) -> str:
    return (
        MANIFEST + f"      startupProbe: {{tcpSocket: {{port: 8000}}, periodSeconds: 1, failureThreshold: {budget}}}\n"
    )


def test_an_option_of_kvgate_yaml_reaches_the_check(tmp_path: Path) -> None:
    # 14.2 GiB at 0.15 GB/s take 102 s, and 60 s whatever the size; four times as fast it is 85 s
    config = "version: 1\nrules: {startup-probe-too-short: {slow_gb_per_second: 0.6, severity: error}}\n"
    slow = check(tmp_path, probed(120), preview=True)
    fast = check(tmp_path, probed(120), config, preview=True)
    assert of_rule(slow, "startup-probe-too-short")
    assert not of_rule(fast, "startup-probe-too-short")
    (short,) = of_rule(check(tmp_path, probed(20), config, preview=True), "startup-probe-too-short")
    assert short.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("{startup-probe-too-short: {slow_gb_second: 0.6}}", 'did you mean "slow_gb_per_second"'),
        ("{startup-probe-too-short: {fixed_seconds: soon}}", 'the parameter "fixed_seconds" is of type float'),
        ("{image-not-pinned: {most: 3}}", "it takes a severity only"),
    ],
)
def test_a_wrong_option_is_refused_at_its_place(tmp_path: Path, options: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        check(tmp_path, config=f"version: 1\nrules: {options}\n", preview=True)
    assert words in str(caught.value)
    assert "kvgate.yaml:2:" in str(caught.value)


# -- the objects around it -----------------------------------------------------------------------------------------

SERVICE = "---\napiVersion: v1\nkind: Service\nmetadata: {name: front}\nspec: {type: NodePort, selector: {app: chat}}\n"


def test_conditions_see_the_objects_around_a_server(tmp_path: Path) -> None:
    folder = tmp_path / ".kvgate" / "rules"
    folder.mkdir(parents=True)
    (folder / "too-many-replicas.yaml").write_text(
        USER_RULE % "unit.services == ['front'] && 'NodePort' in unit.service_types && size(unit.autoscalers) == 0"
    )
    labelled = MANIFEST.replace("{name: chat}", "{name: chat, labels: {app: chat}}")
    assert check(tmp_path, labelled + SERVICE, select=("ours",)).findings
    assert not check(tmp_path, labelled, select=("ours",)).findings


def test_a_crash_over_the_whole_tree_is_placed_at_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(scene: object, params: object) -> list[object]:
        raise ZeroDivisionError("in the check")

    known = dict(checks_module.checks())
    broken = Check("shared-gpu", crash, known["shared-gpu"].params, (), "tree", "")  # type: ignore[arg-type]
    monkeypatch.setitem(checks_module.checks(), "shared-gpu", broken)  # type: ignore[arg-type]
    report = check(tmp_path, preview=True)
    (error,) = report.errors
    assert (error.rule, error.unit) == ("gpu-shared-by-servers", None)
    assert error.where is not None
    assert error.where.line == 1
    assert of_rule(report, "unknown-engine-flag")
