"""A pull request cannot loosen what it is judged by."""

from __future__ import annotations

import json

import pytest

GOOD = ("--max-model-len=16384", "--max-num-seqs=256", "--gpu-memory-utilization=0.95")
WORSE = ("--max-model-len=16384", "--max-num-seqs=256", "--gpu-memory-utilization=0.80")
LABEL = "kvgate/accept-capacity-drop"

# A rule of the users' own, which fires on every unit with more than one replica.
RULE = """\
id: too-many-replicas
title: More than one replica
family: mine
severity: error
confidence: high
status: stable
since: 0.1.0
when: unit.replicas > 1
message: "{unit.replicas} replicas"
remediation: Use one.
why: A demonstration.
"""


@pytest.fixture
def base(repo):
    repo.commit({"chat.yaml": repo.server(args=GOOD), "kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 10%}\n"})
    return repo


def rules(difference):
    return [finding.rule for finding in difference.gate.findings]


def policy_words(difference):
    return [one.message for one in difference.gate.findings if one.rule == "policy-changed-in-head"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("version: 1\ngate: {max_capacity_drop: 100%}\n", "max_capacity_drop: 10% -> 100%"),
        ("version: 1\ngate: {max_capacity_drop: 10%, on_unknown: warn}\n", "on_unknown: fail -> warn"),
        ("version: 1\ngate: {max_capacity_drop: 10%}\nexclude: ['chat.yaml']\n", "nothing -> chat.yaml"),
        ("version: 1\ngate: {max_capacity_drop: 10%}\nrules: {capacity-drop: off}\n", "capacity-drop: unset -> off"),
        (
            "version: 1\ngate: {max_capacity_drop: 10%}\nrules: {capacity-drop: {severity: info}}\n",
            "capacity-drop: unset -> info",
        ),
        ("version: 1\ngate: {max_capacity_drop: 10%}\nprofile: all\n", "recommended -> all"),
        ("version: 1\ngate: {max_capacity_drop: 10%}\nonline: true\n", "False -> True"),
    ],
)
def test_a_loosened_kvgate_yaml_is_reported_and_does_not_count(base, config, says):
    base.commit({"chat.yaml": base.server(args=WORSE), "kvgate.yaml": config})
    difference = base.diff()
    assert difference.gate.verdict == "fail"
    assert "capacity-drop" in rules(difference)
    assert difference.gate.policy.max_capacity_drop == 0.1
    (words,) = policy_words(difference)
    assert says in words
    (finding,) = [one for one in difference.gate.findings if one.rule == "policy-changed-in-head"]
    assert finding.primary.path == "kvgate.yaml"
    assert finding.primary.line in (2, 3)


def test_a_removed_kvgate_yaml_is_reported_and_does_not_count(base):
    base.commit({"kvgate.yaml": None})
    difference = base.diff()
    assert policy_words(difference) == ["kvgate.yaml: removed; this change is judged by the base's"]
    assert difference.gate.policy.max_capacity_drop == 0.1


def test_a_first_kvgate_yaml_counts_from_its_merge_on(repo):
    repo.commit({"chat.yaml": repo.server(args=GOOD)})
    repo.commit({"chat.yaml": repo.server(args=WORSE), "kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 100%}\n"})
    difference = repo.diff()
    assert (difference.gate.verdict, difference.gate.policy.source) == ("fail", "default")
    assert policy_words(difference)


def test_the_base_s_own_tolerance_counts(base):
    base.commit({"kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 90%}\n"})
    base.commit({"chat.yaml": base.server(args=WORSE)})
    difference = base.diff()
    assert (difference.gate.verdict, difference.units[0].verdict) == ("pass", "lower")
    assert difference.units[0].levers


def test_the_base_can_switch_rules_of_the_comparison_off(base):
    base.commit({"kvgate.yaml": "version: 1\nrules: {capacity-drop: warning}\n"})
    base.commit({"chat.yaml": base.server(args=WORSE)})
    difference = base.diff()
    assert (difference.gate.verdict, rules(difference)) == ("pass", ["capacity-drop"])
    assert base.cli("check", ".", "--fail-on", "never").returncode == 0, "kvgate check knows these names too"


@pytest.mark.parametrize("name", ["kvgate.yml", ".kvgate.yaml"])
def test_another_kvgate_yaml_that_would_win_does_not_count(repo, name):
    repo.commit({"chat.yaml": repo.server(args=GOOD), name: "version: 1\n"})
    repo.commit({"chat.yaml": repo.server(args=WORSE), "kvgate.yaml": "version: 1\ngate: {max_capacity_drop: 100%}\n"})
    difference = repo.diff()
    assert difference.gate.verdict == "fail"
    assert policy_words(difference)


def test_a_kvgate_yaml_nearer_to_the_files_does_not_count(repo):
    repo.commit({"deploy/chat.yaml": repo.server(args=GOOD), "kvgate.yaml": "version: 1\n"})
    loose = "version: 1\ngate: {max_capacity_drop: 100%}\n"
    repo.commit({"deploy/chat.yaml": repo.server(args=WORSE), "deploy/kvgate.yaml": loose})
    difference = repo.diff(".", cwd="deploy", base="HEAD~1", head="HEAD")
    assert difference.gate.verdict == "fail"
    assert difference.units[0].id.startswith("Deployment/")


def test_the_rules_of_the_base_judge(base):
    base.commit({".kvgate/rules/too-many-replicas.yaml": RULE, "chat.yaml": base.server(args=GOOD, replicas=1)})
    loosened = RULE.replace("> 1", "> 100")
    base.commit({"chat.yaml": base.server(args=GOOD), ".kvgate/rules/too-many-replicas.yaml": loosened})
    difference = base.diff()
    assert [finding.rule for finding in difference.new] == ["too-many-replicas"]
    assert policy_words(difference) == [
        ".kvgate/rules/too-many-replicas.yaml: changed; this change is judged by the base's"
    ]
    base.commit({".kvgate/rules/too-many-replicas.yaml": None}, "and remove it")
    assert "removed" in policy_words(base.diff())[0]


def test_a_rule_of_the_head_is_not_run(base):
    broken = RULE.replace("severity: error", "severity: dreadful")
    base.commit({".kvgate/rules/too-many-replicas.yaml": broken})
    difference = base.diff()
    assert difference.new == ()
    assert policy_words(difference) == [
        ".kvgate/rules/too-many-replicas.yaml: added; this change is judged by the base's"
    ]


@pytest.fixture
def ruled(base):
    """The users' own rule in the base, and a server that it does not speak of."""
    base.commit({".kvgate/rules/too-many-replicas.yaml": RULE, "chat.yaml": base.server(args=GOOD, replicas=1)})
    return base


def with_comment(text):
    """A server whose finding is hidden by a comment."""
    return text.replace("- name: vllm", "- name: vllm # kvgate: ignore[too-many-replicas] trust me")


def test_the_baseline_of_the_head_accepts_nothing(ruled):
    base, bad = ruled, ruled.server(args=GOOD)
    base.commit({"kvgate.yaml": "version: 1\nbaseline: .kvgate/baseline.json\n"})
    base.write({"chat.yaml": bad})
    base.cli("check", ".", "--write-baseline")
    accepted = json.loads((base.root / ".kvgate/baseline.json").read_text())
    assert [entry["rule"] for entry in accepted["findings"]] == ["too-many-replicas"]
    base.commit({})
    difference = base.diff()
    assert [finding.rule for finding in difference.new] == ["too-many-replicas"]
    assert rules(difference) == ["policy-changed-in-head", "suppression-added-in-head"]
    base.commit({"chat.yaml": bad.replace("replicas: 2", "replicas: 3")})
    assert base.diff().new == (), "in the base, it counts"


def test_a_suppression_of_the_head_hides_nothing(ruled):
    ruled.commit({"chat.yaml": with_comment(ruled.server(args=GOOD))})
    difference = ruled.diff()
    assert [(finding.rule, finding.severity.value) for finding in difference.new] == [("too-many-replicas", "error")]
    (finding,) = difference.gate.findings
    assert finding.rule == "suppression-added-in-head"
    assert finding.message == "this change hides its own finding too-many-replicas (error): 2 replicas"
    assert ruled.cli("diff", "--base", "HEAD~1", "--head", "HEAD").returncode == 1
    ruled.commit({"chat.yaml": with_comment(ruled.server(args=GOOD, replicas=3))})
    difference = ruled.diff()
    assert (difference.new, rules(difference)) == ((), []), "in the base, it counts"


def test_a_suppression_of_an_old_finding_is_no_fix(ruled):
    ruled.commit({"chat.yaml": ruled.server(args=GOOD)})
    ruled.commit({"chat.yaml": with_comment(ruled.server(args=GOOD))})
    difference = ruled.diff()
    assert (difference.new, difference.fixed) == ((), ())
    assert [finding.rule for finding in difference.unchanged] == ["too-many-replicas"]


def test_a_smaller_declared_load_does_not_raise_the_capacity(base):
    small = {"peak-concurrency": 10, "prompt-tokens": 100, "output-tokens": 100}
    base.commit({"chat.yaml": base.server(args=WORSE, load=small)})
    difference = base.diff()
    (unit,) = difference.units
    assert unit.yardstick is not None
    assert unit.yardstick.tokens == 8500
    assert difference.gate.verdict == "fail"
    assert policy_words(difference) == [
        "the declared load changes (prompt_tokens 7,500 -> 100, output_tokens 1,000 -> 100): "
        "this change is judged by the base's"
    ]


def test_a_smaller_declared_load_in_kvgate_yaml_does_not_either(repo):
    config = "version: 1\nunits: [{workload: {peak_concurrency: %d, prompt_tokens: %d, output_tokens: 1000}}]\n"
    repo.commit({"chat.yaml": repo.server(args=GOOD, load={}), "kvgate.yaml": config % (10, 7500)})
    repo.commit({"chat.yaml": repo.server(args=WORSE, load={}), "kvgate.yaml": config % (1, 10)})
    difference = repo.diff()
    assert difference.gate.verdict == "fail"
    assert [one.primary.path for one in difference.gate.findings if one.rule == "policy-changed-in-head"] == [
        "kvgate.yaml"
    ]


def test_a_lower_declared_peak_does_not_silence_a_rule(repo):
    """40 requests are declared and some 14 fit; the head declares 1, and loses nothing else."""
    load = {"peak-concurrency": 40, "prompt-tokens": 7500, "output-tokens": 1000}
    repo.commit({"chat.yaml": repo.server(load={**load, "peak-concurrency": 2})})
    repo.commit({"chat.yaml": repo.server(load=load)}, "more is declared: a finding")
    assert [finding.rule for finding in repo.diff().new if finding.severity.value == "error"] == [
        "peak-concurrency-exceeds-kv-cache"
    ]
    repo.commit({"chat.yaml": repo.server(load={**load, "peak-concurrency": 1})}, "less is declared: still there")
    difference = repo.diff()
    assert "peak-concurrency-exceeds-kv-cache" in [finding.rule for finding in difference.unchanged]
    assert difference.fixed == ()


def test_a_forged_lock_of_a_locked_model_does_not_count(repo):
    """The head's lock claims one KV head instead of eight: an eighth of the bytes per token."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    forged = {**config, "num_key_value_heads": 1}
    place = ".kvgate/models/acme__chat/config.json"
    repo.commit({"chat.yaml": repo.server(model="acme/chat", args=GOOD), place: json.dumps(config)})
    repo.commit({"chat.yaml": repo.server(model="acme/chat", args=WORSE), place: json.dumps(forged)})
    difference = repo.diff()
    (unit,) = difference.units
    assert unit.head is not None
    assert unit.head.prediction is not None
    assert unit.head.prediction.kv_cache.bytes_per_token == 131072
    assert difference.gate.verdict == "fail"
    assert policy_words(difference) == [f"{place}: changed; this change is judged by the base's"]


def test_a_lock_of_a_model_that_is_new_counts_and_is_said(repo):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    }  # fmt: skip
    repo.commit({"chat.yaml": repo.server(args=GOOD)})
    text = repo.server(model="acme/small", args=GOOD)
    repo.commit({"chat.yaml": text}, "without a lock")
    difference = repo.diff()
    assert (difference.gate.verdict, rules(difference)) == ("fail", ["capacity-unknown"])
    assert "kvgate lock --online" in difference.gate.findings[0].message
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    repo.commit({"chat.yaml": text, ".kvgate/models/acme__small/config.json": json.dumps(config)}, "with its lock")
    difference = repo.diff()
    assert difference.gate.verdict == "pass"
    (finding,) = difference.gate.findings
    assert (finding.rule, finding.severity.value) == ("policy-changed-in-head", "info")
    assert finding.message.startswith(".kvgate/models/acme__small comes with this change")


# -- hiding a server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({".gitignore": "chat.yaml\n"}, "left out, by .gitignore"),
        ({"chat.yaml": "kind: Deployment\n  vllm: [serve\n"}, "could not be read"),
        ({"chat.yaml": "{{- if .Values.on }}\nimage: vllm/vllm-openai:v0.19.1\n{{- end }}\n"}, "could not be read"),
        ({"chat.yaml": "\0\0vllm"}, "a binary file"),
        ({"chat.yaml": "# vllm\n" + "#" * 6_000_000}, "a file of 6 MB is not read"),
    ],
)
def test_a_server_that_can_no_longer_be_read_is_unknown_not_removed(base, files, reason):
    base.write(files)
    base.git("add", "--all", "--force")
    base.git("commit", "--quiet", "--message", "hide")
    difference = base.diff()
    (unit,) = difference.units
    assert unit.verdict == "unknown"
    assert reason in unit.reason
    assert difference.gate.verdict == "fail"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("--gpu-memory-utilization=0.95", "--gpu-memory-utilization=$(SECRET)"), "gpu_memory_utilization"),
        (("nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090", "pool: a"), "does not say which GPU"),
        (("--model=meta-llama/Llama-3.1-8B-Instruct", "--model=acme/private"), "acme/private"),
        (("--model=meta-llama/Llama-3.1-8B-Instruct", "--model=$(SECRET)"), ""),
    ],
)
def test_what_becomes_unknown_closes_the_gate(base, change, reason):
    base.commit({"chat.yaml": base.server(args=GOOD, secrets=("SECRET",)).replace(*change)})
    difference = base.diff()
    (unit,) = difference.units
    assert (unit.verdict, difference.gate.verdict) == ("unknown", "fail")
    assert reason in unit.reason
    assert rules(difference) == ["capacity-unknown"]


def test_what_the_release_refuses_is_no_unknown(base):
    """vLLM does not start with it, whatever else is not known: on_unknown does not apply."""
    base.commit({"kvgate.yaml": "version: 1\ngate: {on_unknown: warn}\n"})
    args = ("--max-model-len=16384", "--gpu-memory-utilization=$(SHARE)", "--max-modle-len=1")
    base.commit({"chat.yaml": base.server(args=args, secrets=("SHARE",))})
    difference = base.diff()
    assert (difference.units[0].verdict, difference.gate.verdict) == ("drop", "fail")
    assert "the server does not start: vLLM 0.19.1 has no flag --max-modle-len" in difference.units[0].reason


def test_on_unknown_warn_of_the_base_opens_it(base):
    base.commit({"kvgate.yaml": "version: 1\ngate: {on_unknown: warn}\n"})
    base.commit({"chat.yaml": base.server(args=(*GOOD[:2], "--gpu-memory-utilization=$(SHARE)"), secrets=("SHARE",))})
    difference = base.diff()
    assert (difference.gate.verdict, rules(difference)) == ("pass", ["capacity-unknown"])
    assert difference.gate.findings[0].severity.value == "warning"


def test_what_is_unknown_on_both_sides_cannot_close_it(repo):
    text = repo.server(args=GOOD).replace("nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090", "pool: a")
    repo.commit({"chat.yaml": text})
    repo.commit({"chat.yaml": text.replace("0.95", "0.80")})
    difference = repo.diff()
    assert (difference.units[0].verdict, difference.gate.verdict) == ("incomparable", "pass")
    assert "the base's capacity is unknown" in difference.units[0].reason


def test_what_is_unresolved_in_the_same_way_on_both_sides_is_compared(repo):
    args = ("--max-model-len=16384", "--max-num-batched-tokens=$(BUDGET)")
    for share in ("0.95", "0.80"):
        text = repo.server(args=(*args, f"--gpu-memory-utilization={share}"), secrets=("BUDGET",))
        repo.commit({"chat.yaml": text})
    difference = repo.diff()
    (unit,) = difference.units
    assert unit.verdict == "drop"
    assert unit.head is not None
    assert "max_num_batched_tokens is taken as unset on both sides" in (unit.head.capacity.reason or "")


# -- the label -----------------------------------------------------------------------------------------------------


def test_a_maintainer_s_label_opens_the_gate(base, pull_request):
    before = base.git("rev-parse", "HEAD")
    base.git("checkout", "--quiet", "-b", "topic")
    base.commit({"chat.yaml": base.server(args=WORSE)})
    difference = base.diff(event=pull_request(before, None, "bug", LABEL))
    assert (difference.gate.verdict, difference.gate.label) == ("accepted", LABEL)
    assert difference.gate.reasons
    assert [finding.severity.value for finding in difference.gate.findings] == ["info"]
    closed = base.diff(event=pull_request(before, None, "bug", LABEL.upper()))
    assert closed.gate.verdict == "fail"
    other = base.diff(event=pull_request(before, None, "ok-by-me"), override_label="ok-by-me")
    assert other.gate.verdict == "accepted"


def test_text_by_the_author_opens_nothing(base):
    text = f"# {LABEL}\n# kvgate: ignore[capacity-drop] {LABEL}\n" + base.server(args=WORSE)
    base.commit({"chat.yaml": text}, f"{LABEL}\n\nlabels: {LABEL}")
    assert base.diff().gate.verdict == "fail"


def test_the_label_lets_a_suppression_of_the_head_count(ruled, pull_request):
    before = ruled.git("rev-parse", "HEAD")
    ruled.commit({"chat.yaml": with_comment(ruled.server(args=GOOD))})
    difference = ruled.diff(event=pull_request(before, None, LABEL))
    assert difference.new == ()
    assert rules(difference) == ["suppression-added-in-head"]
