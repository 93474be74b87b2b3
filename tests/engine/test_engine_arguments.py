"""Command lines as people write them, and what each release makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.engine.arguments import ArgumentProblem, ParsedArguments, parse_arguments
from kvgate.source.text import SourceFile, Text, Unresolved, Word, words_of_command_line


def parse(line: str | list[str], version: str | None = "0.33.0", *, positional: bool = True) -> ParsedArguments:
    words = line.split() if isinstance(line, str) else line
    return parse_arguments(words_of_command_line(words), version, positional_model=positional)


def args_of(line: str | list[str], version: str | None = "0.33.0", *, positional: bool = True) -> dict[str, Any]:
    return parse(line, version, positional=positional).as_args()


def kinds(parsed: ParsedArguments) -> list[str]:
    return [problem.kind for problem in parsed.problems]


def only_problem(parsed: ParsedArguments) -> ArgumentProblem:
    assert len(parsed.problems) == 1, parsed.problems
    return parsed.problems[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--max-model-len 4096", {"max_model_len": 4096}),
        ("--max_model_len=4096", {"max_model_len": 4096}),
        ("--max-model-len 25.6k", {"max_model_len": 25600}),
        ("--max-model-len 2K", {"max_model_len": 2048}),
        ("--max-model-len auto", {"max_model_len": -1}),
        ("--max-model-len -1", {"max_model_len": -1}),
        ("-tp 4 -pp=2 -dp 8", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "data_parallel_size": 8}),
        ("--max-num-seq 64", {"max_num_seqs": 64}),
        ("--max-num-batched-token=8k", {"max_num_batched_tokens": 8000}),
        ("--gpu-memory-utilizatio=0.9", {"gpu_memory_utilization": 0.9}),
        ("--device-memory-utilization 0.5", {"gpu_memory_utilization": 0.5}),
        ("--enforce-eager", {"enforce_eager": True}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--no_enable_prefix_caching", {"enable_prefix_caching": False}),
        ("--disable-prefix-caching", {"enable_prefix_caching": False}),
        ("-O3", {"optimization_level": "3"}),
        ("-O=3", {"optimization_level": "3"}),
        ("-O 3", {"optimization_level": "3"}),
        ("--served-model-name a b --port 80", {"served_model_name": ["a", "b"], "port": 80}),
        ("--lora-modules a=/x b=/y", {"lora_modules": ["a=/x", "b=/y"]}),
        (["--lora-modules", '{"name": "a", "path": "/x"}'], {"lora_modules": ['{"name": "a", "path": "/x"}']}),
        (["--allowed-origins", '["*"]'], {"allowed_origins": ["*"]}),
        (["--limit-mm-per-prompt", '{"image": 2}'], {"limit_mm_per_prompt": {"image": 2}}),
        ("--limit-mm-per-prompt.image 2", {"limit_mm_per_prompt": {"image": 2}}),
        (
            "-sc.method=mtp -sc.num_speculative_tokens 3",
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}},
        ),
        ("-cc.custom_ops+ a,b -cc.custom_ops+=c", {"compilation_config": {"custom_ops": ["a", "b", "c"]}}),
        ("-cc.pass_config.fuse_norm_quant true", {"compilation_config": {"pass_config": {"fuse_norm_quant": True}}}),
        ("--kv-transfer-config.kv_buffer_size 1g", {"kv_transfer_config": {"kv_buffer_size": 10**9}}),
        (["--kv-transfer-config", '{"kv_buffer_size": 80m}'], {"kv_transfer_config": {"kv_buffer_size": 80 * 10**6}}),
        (["--hf-overrides", '{"a": {"b": 1}}'], {"hf_overrides": {"a": {"b": 1}}}),
        (["--override-generation-config", '{"a":1}'], {"override_generation_config": {"a": 1}}),
        ("--quantization None --dtype auto", {"quantization": None, "dtype": "auto"}),
        ("-q awq", {"quantization": "awq"}),
        ("-qawq", {"quantization": "awq"}),
        ("--middleware a --middleware b", {"middleware": ["a", "b"]}),
        ("--moe-backend DEEP-GEMM", {"moe_backend": "deep_gemm"}),
        ("--hf-token", {"hf_token": True}),
        ("--long-prefill-token-threshold 4", {"long_prefill_token_threshold": 4}),
        ("--kv-cache-memory-bytes 16g", {"kv_cache_memory_bytes": 16 * 10**9}),
        ("--config /etc/vllm.yaml", {"config": "/etc/vllm.yaml"}),
    ],
)
def test_forms_that_the_newest_release_takes(line: str | list[str], expected: dict[str, Any]) -> None:
    words = line.split() if isinstance(line, str) else line
    parsed = parse(["m", *words])
    assert parsed.as_args() == expected
    assert parsed.model is not None
    assert parsed.model.value == "m"
    assert parsed.problems == ()


def test_dotted_keys_replace_the_whole_object_of_the_plain_flag() -> None:
    # vLLM appends the folded object after all other words, and argparse lets the last one win.
    parsed = parse(["-cc.mode", "3", "--compilation-config", '{"level": 1}'])
    assert parsed.as_args() == {"compilation_config": {"mode": 3}}
    assert kinds(parsed) == ["repeated-flag"]


def test_two_spellings_of_dotted_keys_are_two_objects() -> None:
    parsed = parse("--compilation-config.mode 3 -cc.level 1")
    assert parsed.as_args() == {"compilation_config": {"level": 1}}


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("--enable-chunked-prefill false", "0.7.3", {"enable_chunked_prefill": False}),
        ("--enable-chunked-prefill=True", "0.7.3", {"enable_chunked_prefill": True}),
        ("--enable-chunked-prefill --port 1", "0.7.3", {"enable_chunked_prefill": True, "port": 1}),
        ("--limit-mm-per-prompt image=2,video=1", "0.7.3", {"limit_mm_per_prompt": {"image": 2, "video": 1}}),
        ("--limit-mm-per-prompt image=2", "0.9.2", {"limit_mm_per_prompt": {"image": 2}}),
        ("-O3", "0.8.5", {"compilation_config": {"level": 3}}),
        ("-O 3", "0.10.2", {"compilation_config": {"level": 3}}),
        ("-O.level=3", "0.10.2", {"compilation_config": {"level": 3}}),
        (
            "--speculative-model d --num-speculative-tokens 5",
            "0.7.3",
            {"speculative_model": "d", "num_speculative_tokens": 5},
        ),
        ("--swap-space 4", "0.8.5", {"swap_space": 4.0}),
        ("--swap-space 4", "0.5.4", {"swap_space": 4}),
        ("--max-model-len 8k", "0.8.5", {"max_model_len": 8000}),
        ("--disable-log-requests", "0.10.0", {"disable_log_requests": True}),
        ("--disable-log-requests", "0.33.0", {"enable_log_requests": False}),
        ("--disable-log-requests --port 1", None, {"disable_log_requests": True, "port": 1}),
    ],
)
def test_forms_of_other_releases(line: str, version: str | None, expected: dict[str, Any]) -> None:
    parsed = parse(["m", *line.split()], version)
    assert parsed.as_args() == expected
    assert not [problem for problem in parsed.problems if problem.refused]


def test_a_release_that_nobody_names_decides_on_no_second_meaning() -> None:
    words = words_of_command_line(["m", "--disable-log-requests"])
    parsed = parse_arguments(words, "0.33.0", positional_model=True, assumed=True)
    assert parsed.as_args() == {"disable_log_requests": True}
    assert not parsed.problems


@pytest.mark.parametrize(
    ("line", "version", "kind", "expected"),
    [
        ("--enable-prefix-caching=false", "0.33.0", "unexpected-value", {"enable_prefix_caching": False}),
        ("--enable-chunked-prefill True", "0.11.0", "unexpected-value", {"enable_chunked_prefill": True}),
        ("--no-enable-prefix-caching=false", "0.33.0", "unexpected-value", {"enable_prefix_caching": True}),
        ("--max-num-seqs 2K", "0.33.0", "invalid-value", {"max_num_seqs": 2048}),
        ("--max-model-len 8k", "0.8.3", "invalid-value", {"max_model_len": 8000}),
        ("--max-model-len auto", "0.13.0", "invalid-value", {"max_model_len": -1}),
        ("--max-model-len 1.5M", "0.33.0", "invalid-value", {"max_model_len": "1.5M"}),
        ("--limit-mm-per-prompt image=2", "0.10.0", "invalid-value", {"limit_mm_per_prompt": {"image": 2}}),
        ("--gpu-memory-utilization 1.2", "0.33.0", "invalid-value", {"gpu_memory_utilization": 1.2}),
        ("--gpu-memory-utilization 90%", "0.33.0", "invalid-value", {"gpu_memory_utilization": "90%"}),
        (
            "--prefix-caching-hash-algo sha256_cbor",
            "0.10.0",
            "invalid-value",
            {"prefix_caching_hash_algo": "sha256_cbor"},
        ),
        ("--speculative-config not-json", "0.33.0", "invalid-value", {"speculative_config": "not-json"}),
        ("--port", "0.33.0", "missing-value", {"port": None}),
        ("--port --enforce-eager", "0.33.0", "missing-value", {"port": None, "enforce_eager": True}),
        ("--max-num 4", "0.33.0", "ambiguous-flag", {"max_num": "4"}),
        ("-tp4", "0.33.0", "unknown-flag", {"tensor_parallel_size": 4}),
        ("-O.level=3", "0.33.0", "unknown-flag", {"compilation_config": {"level": 3}}),
        ("-sc.method mtp", "0.8.5", "unknown-flag", {"speculative_config": {"method": "mtp"}}),
        ("--max_model_len 4", "0.4.3", "unknown-flag", {"max_model_len": 4}),
        ("--shm-size 16G", "0.33.0", "unknown-flag", {"shm_size": "16G"}),
        ("--is-prefill-worker", "0.33.0", "unknown-flag", {"is_prefill_worker": True}),
        ("--port = 80", "0.33.0", "unexpected-value", {"port": 80}),
        ("--port 80 extra", "0.33.0", "extra-positional", {"port": 80}),
        ("--port 80 --port 81", "0.33.0", "repeated-flag", {"port": 81}),
        ("--task embed", "0.12.0", "deprecated-flag", {"task": "embed"}),
    ],
)
def test_what_a_release_refuses_is_read_as_it_was_meant(
    line: str, version: str, kind: str, expected: dict[str, Any]
) -> None:
    parsed = parse(["m", *line.split()], version)
    assert kinds(parsed) == [kind]
    assert parsed.as_args() == expected


def test_flag_and_value_in_one_word() -> None:
    parsed = parse(["m", "--max-model-len 4096", "--served-model-name  x"])
    assert parsed.as_args() == {"max_model_len": 4096, "served_model_name": ["x"]}
    assert kinds(parsed) == ["unsplit-words", "unsplit-words"]
    assert all(problem.refused for problem in parsed.problems)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model m --max-model-len 4096 --enforce-eager"], {"max_model_len": 4096, "enforce_eager": True}),
        (["--model=m  --max_model_len=4096"], {"max_model_len": 4096}),
        (["m --max-model-len 4096\n--seed 1"], {"max_model_len": 4096, "seed": 1}),
        (["m", "--max-model-len 4096 --seed", "1"], {"max_model_len": 4096, "seed": 1}),
    ],
)
def test_a_command_line_in_one_word(words: list[str], expected: dict[str, Any]) -> None:
    parsed = parse(words)
    assert parsed.model is not None
    assert (parsed.model.value, parsed.as_args()) == ("m", expected)
    assert kinds(parsed)[0] == "unsplit-words"
    assert parsed.problems[0].span.text == next(word for word in words if " " in word)


@pytest.mark.parametrize(
    "words",
    [
        ["m", "--override-generation-config", '{"stop": "a --seed 1"}'],
        ["m", '--override-generation-config={"stop": "a --seed 1"}'],
        ["m", "--served-model-name", "a --seed 1"],
        ["a --nothing of vLLM's"],
    ],
)
def test_a_text_with_dashes_in_it_is_one_word(words: list[str]) -> None:
    parsed = parse(words)
    assert "seed" not in parsed.arguments
    assert kinds(parsed) == []


def test_a_removed_flag_says_when_and_what_instead() -> None:
    problem = only_problem(parse("m --swap-space 4", "0.33.0"))
    assert problem.kind == "unknown-flag"
    assert (problem.removed_after, problem.removed_in, problem.added_in) == ("0.17.1", "0.18.0", None)
    assert problem.certain
    assert problem.suggestion is not None
    assert problem.suggestion.startswith("delete it")
    assert parse("m --swap-space 4", "0.33.0").arguments["swap_space"].value == 4.0


def test_a_flag_of_later_releases_says_since_when() -> None:
    problem = only_problem(parse("m --kv-cache-memory-bytes 1000", "0.10.1.1"))
    assert (problem.added_in, problem.removed_after, problem.certain) == ("0.10.2", None, True)


def test_a_flag_that_went_and_came_back() -> None:
    problem = only_problem(parse("m --disable-log-requests", "0.26.0"))
    assert (problem.removed_after, problem.removed_in, problem.added_in) == ("0.16.0", "0.17.0", "0.33.0")
    assert parse("m --disable-log-requests", "0.26.0").as_args() == {"disable_log_requests": True}


@pytest.mark.parametrize(("version", "certain"), [("0.33.0", True), ("0.32.5", True), ("0.34.0", False), (None, False)])
def test_certainty_follows_the_version(version: str | None, certain: bool) -> None:
    assert only_problem(parse("m --no-such-flag 1", version)).certain is certain


def test_neighbours_that_disagree_leave_the_flag_uncertain() -> None:
    # --swap-space is in 0.17.1 and not in 0.18.0: a release between them may lack it.
    parsed = parse("m --swap-space 4", "0.17.2")
    assert parsed.problems == ()
    problem = only_problem(parse("m --shutdown-timeout 4", "0.17.2"))
    assert (problem.kind, problem.certain) == ("unknown-flag", False)


def test_an_unknown_flag_gets_the_closest_name() -> None:
    assert only_problem(parse("m --max-modle-len 5")).suggestion == "--max-model-len"
    assert only_problem(parse("m --kv-cache-dtyp3 5")).suggestion == "--kv-cache-dtype"


@pytest.mark.parametrize(
    ("line", "version", "positional", "model", "problems"),
    [
        ("m", "0.33.0", True, "m", []),
        ("--port 1 m", "0.33.0", True, "m", []),
        ("--model m", "0.33.0", False, "m", []),
        ("--model=m", "0.33.0", False, "m", []),
        ("--model m", "0.33.0", True, "m", ["model-as-flag"]),
        ("--model m", "0.10.2", True, "m", ["model-as-flag"]),
        ("x --model m", "0.33.0", True, "x", ["model-as-flag", "duplicate-model"]),
        ("--model m x", "0.33.0", True, "x", ["model-as-flag", "duplicate-model"]),
        ("m", "0.33.0", False, "m", ["ignored-model"]),
        ("m x", "0.33.0", False, "m", ["ignored-model", "extra-positional"]),
        ("m --model x", "0.33.0", False, "x", ["ignored-model"]),
        ("m", "0.9.2", False, None, ["extra-positional"]),
        ("", "0.33.0", True, None, []),
        ("--enforce-eager m", "0.33.0", True, "m", []),
        ("m -- --port", "0.33.0", True, "m", ["extra-positional"]),
    ],
)
def test_where_the_model_stands(
    line: str, version: str, positional: bool, model: str | None, problems: list[str]
) -> None:
    parsed = parse(line, version, positional=positional)
    assert (parsed.model.value if parsed.model else None) == model
    assert kinds(parsed) == problems
    assert "model" not in parsed.arguments


def test_model_flag_with_serve_was_refused_and_is_deprecated() -> None:
    assert parse("--model m", "0.11.0").problems[0].refused
    assert not parse("--model m", "0.11.1").problems[0].refused


def test_served_model_name_wants_the_model_first() -> None:
    assert kinds(parse("--port 1 --served-model-name x --enforce-eager m", "0.33.0")) == ["model-not-first"]
    assert kinds(parse("m --served-model-name x", "0.33.0")) == []
    assert kinds(parse("--served-model-name x --port 1 m", "0.16.0")) == []
    assert kinds(parse("--served-model-name x --config c.yaml", "0.33.0")) == []


@pytest.mark.parametrize(
    "words",
    [["--api-key", "hunter2"], ["--api-key=hunter2"], ["--hf-token", "hunter2"], ["--api-key", "hunter2", "hunter2"]],
)
def test_secrets_are_never_shown(words: list[str]) -> None:
    parsed = parse(["m", *words, "--max-num-seqs", "4"])
    assert "***" in parsed.as_args().values()
    assert "hunter2" not in repr(parsed.as_args())
    assert all("hunter2" not in str(argument.text) for argument in parsed.arguments.values())
    assert all("hunter2" not in problem.message for problem in parsed.problems)


def test_secrets_in_objects_and_unknown_flags() -> None:
    parsed = parse(
        ["m", "--kv-transfer-config", '{"a": {"auth_token": "hunter2", "max_tokens": 4}}', "--my-password", "hunter2"]
    )
    assert parsed.as_args() == {
        "kv_transfer_config": {"a": {"auth_token": "***", "max_tokens": 4}},
        "my_password": "***",
    }
    assert "hunter2" not in str(parsed.arguments["kv_transfer_config"].text)


def word(text: str, *missing: str, splits: bool = False) -> Word:
    file = SourceFile("run.sh", text)
    return Word(Text.of_span(file.span(0, len(text))), tuple(Unresolved(part, "not set") for part in missing), splits)


def plain(*texts: str) -> list[Word]:
    return [word(text) for text in texts]


def parse_words(*words: Word, positional: bool = True) -> ParsedArguments:
    return parse_arguments(words, "0.33.0", positional_model=positional)


def test_values_that_the_files_do_not_say() -> None:
    parsed = parse_words(*plain("m", "-tp"), word("${TP}", "${TP}"), word("--port=$(PORT)", "$(PORT)"))
    assert parsed.as_args() == {
        "tensor_parallel_size": {"unresolved": "${TP}", "reason": "not set"},
        "port": {"unresolved": "$(PORT)", "reason": "not set"},
    }
    assert parsed.problems == ()
    assert not parsed.arguments["port"].resolved


def test_an_unresolved_part_makes_the_whole_value_unresolved() -> None:
    parsed = parse_words(*plain("m", "--kv-events-config"), word('{"endpoint": "tcp://${IP}:5"}', "${IP}"))
    assert parsed.arguments["kv_events_config"].value == Unresolved('{"endpoint": "tcp://${IP}:5"}', "not set")
    dotted = parse_words(*plain("m"), word("--kv-events-config.endpoint=${IP}", "${IP}"))
    assert dotted.arguments["kv_events_config"].value == Unresolved("${IP}", "not set")


def test_words_that_may_be_many_are_no_positional() -> None:
    parsed = parse_words(*plain("m", "--port", "80"), word("$ARGS", "$ARGS", splits=True))
    assert kinds(parsed) == ["unresolved-words"]
    assert parsed.as_args() == {"port": 80}
    several = parse_words(*plain("m", "--served-model-name", "x"), word("$ARGS", "$ARGS", splits=True))
    assert several.as_args() == {"served_model_name": ["x"]}
    assert kinds(several) == ["unresolved-words"]


def test_a_splitting_word_in_the_place_of_the_model() -> None:
    parsed = parse_words(word("$MODEL", "$MODEL", splits=True), *plain("--port", "80"))
    assert parsed.model is not None
    assert parsed.model.value == Unresolved("$MODEL", "not set")
    assert kinds(parsed) == ["unresolved-words"]
    named = parse_words(word("$ARGS", "$ARGS", splits=True), *plain("--port", "80", "m"))
    assert named.model is not None
    assert named.model.value == "m"


def test_a_word_that_nobody_knows_is_no_second_model() -> None:
    parsed = parse_words(*plain("--model", "m"), word("{{ more }}", "{{ more }}"), *plain("--port", "80"))
    assert parsed.model is not None
    assert parsed.model.value == "m"
    assert kinds(parsed) == ["model-as-flag", "unresolved-words"]
    partly = parse_words(*plain("--model", "m"), word("org/${NAME}", "${NAME}"))
    assert kinds(partly) == ["model-as-flag", "duplicate-model"]


@pytest.mark.parametrize(
    "text", ["{{ if range $k, $v := .Values.args }} $v {{ end }}", "{{ if .Values.lora }}--enable-lora{{ end }}"]
)
def test_what_a_template_writes_under_a_condition_is_no_model(text: str) -> None:
    parsed = parse_words(word(text, text), *plain("--port", "80"))
    assert (parsed.model, parsed.as_args(), kinds(parsed)) == (None, {"port": 80}, ["unresolved-words"])
    one = "{{ if .Values.local }}/models/m{{ end }}"
    model = parse_words(word(one, one), *plain("--port", "80")).model
    assert model is not None
    assert model.value == Unresolved(one, "not set")


def test_a_quoted_unresolved_model() -> None:
    parsed = parse_words(word("${MODEL}", "${MODEL}"), *plain("--port", "80"))
    assert parsed.model is not None
    assert parsed.model.value == Unresolved("${MODEL}", "not set")
    assert parsed.problems == ()


def test_an_unresolved_flag_name() -> None:
    parsed = parse_words(*plain("m"), word("--${FLAG}=4", "${FLAG}"), word("$(EXTRA)", "$(EXTRA)"))
    assert kinds(parsed) == ["unresolved-words", "unresolved-words"]
    assert parsed.as_args() == {}


def test_spans_reach_from_the_flag_to_the_end_of_its_value() -> None:
    text = "vllm serve m --max-model-len 4096 --served-model-name a b --enforce-eager -tp=2"
    file = SourceFile("run.sh", text)
    words = []
    at = 0
    for piece in text.split():
        at = text.index(piece, at)
        words.append(Word(Text.of_span(file.span(at, at + len(piece)))))
        at += len(piece)
    parsed = parse_arguments(words[2:], "0.33.0", positional_model=True)
    assert {dest: argument.span.text for dest, argument in parsed.arguments.items()} == {
        "max_model_len": "--max-model-len 4096",
        "served_model_name": "--served-model-name a b",
        "enforce_eager": "--enforce-eager",
        "tensor_parallel_size": "-tp=2",
    }
    assert parsed.model is not None
    assert parsed.model.span.text == "m"
    length = parsed.arguments["max_model_len"]
    assert (str(length.flag), str(length.text), length.known) == ("--max-model-len", "4096", True)
    assert str(parsed.arguments["tensor_parallel_size"].flag) == "-tp"
    assert str(parsed.arguments["served_model_name"].text) == "a b"


def test_a_value_from_another_file_leaves_the_span_at_the_flag() -> None:
    parsed = parse_words(*plain("m", "--port", "80"))
    assert parsed.arguments["port"].span.text == "--port"
    assert str(parsed.arguments["port"].text) == "80"


def test_repeated_flags_keep_the_last() -> None:
    parsed = parse("m --port 80 --port=81")
    assert parsed.arguments["port"].value == 81
    assert parsed.arguments["port"].repeated
    assert not only_problem(parsed).refused


@pytest.mark.parametrize("version", ["0.6.3", "0.33.0"])
def test_a_key_that_is_switched_off_needs_no_flag_that_says_so(version: str) -> None:
    # --disable-log-stats has no --no- form in any release, --enforce-eager none before 0.8
    file = SourceFile("serve.py", "LLM(enforce_eager=False, disable_log_stats=False)")
    keys = [file.span(4, 17), file.span(25, 42)]
    words = [Word(Text.at("--no-" + key.text.replace("_", "-"), key)) for key in keys]
    parsed = parse_arguments(words, version, positional_model=False)
    assert parsed.as_args() == {"enforce_eager": False, "disable_log_stats": False}
    assert not parsed.problems
    assert kinds(parse("--no-disable-log-stats", version)) == ["unknown-flag"]
    gone = parse_arguments([Word(Text.at("--no-worker-use-ray", keys[0]))], "0.33.0", positional_model=False)
    assert gone.as_args() == {"worker_use_ray": False}
    assert "--worker-use-ray" in only_problem(gone).message
