"""What a pull request may hold: values that vLLM refuses, secrets, hostile names, declarations that mean nothing."""

import os

import pytest

MODEL = "Qwen/Qwen3-8B"
SECRET = "s3cr3t-Value-0815"


def compose(arguments="", image="vllm/vllm-openai:v0.11.0", extra=""):
    return f"services:\n  a:\n    image: {image}\n    command: --model {MODEL} {arguments}\n{extra}"


@pytest.fixture
def check(kvgate, tmp_path):
    def run(text, *options, name="compose.yaml"):
        (tmp_path / name).write_text(text)
        return kvgate("check", ".", "--gpu", "L4", "--format", "json", *options)

    return run


REFUSED = [
    "--tensor-parallel-size 0",
    "--tensor-parallel-size=-2",
    "--pipeline-parallel-size 0",
    "--max-model-len 0",
    "--max-model-len=-5",
    "--max-num-seqs 0",
    "--max-num-seqs 1,000",
    "--max-num-batched-tokens 0",
    "--gpu-memory-utilization 1.5",
    "--gpu-memory-utilization=-0.5",
    "--gpu-memory-utilization nan",
    "--gpu-memory-utilization inf",
    "--gpu-memory-utilization abc",
    "--kv-cache-dtype fp7",
    "--block-size 7",
    "--max-mdel-len 4096",
]


@pytest.mark.parametrize("version", ["0.6.0", "0.8.5", "0.11.0", "0.19.1", "0.33.0"])
@pytest.mark.parametrize("arguments", REFUSED)
def test_what_vllm_refuses_does_not_start_and_crashes_nothing(arguments, version):
    import kvgate

    open_choice = {"--block-size 7": ("0.19.1", "0.33.0"), "--kv-cache-dtype fp7": ("0.33.0",)}
    if version in open_choice.get(arguments, ()):
        pytest.skip("these releases take more than a written list of values")
    words = arguments.replace("=", " ").split(" ") if "=-" not in arguments else [arguments]
    prediction = kvgate.predict(MODEL, words, gpu="L4", vllm_version=version)
    assert prediction.starts == "no"
    assert prediction.reasons


@pytest.mark.parametrize("arguments", ["--tensor-parallel-size 0", "--gpu-memory-utilization nan", "--max-model-len 0"])
def test_check_reports_it_and_the_rest(check, arguments):
    result = check(compose(arguments, extra="  b:\n    image: vllm/vllm-openai:latest\n    command: --model x/y\n"))
    assert result.code == 1
    assert len(result.json["units"]) == 2
    assert "invalid-engine-value" in {found["rule"] for found in result.json["findings"]}


@pytest.mark.parametrize("version", ["foo", "", "latest"])
def test_a_version_that_is_none_is_usage_on_the_command_line(kvgate, version):
    result = kvgate("predict", MODEL, f"--vllm-version={version}")
    assert result.code == 2 or version == ""


def test_a_version_that_is_none_or_newer_is_said_in_python():
    import kvgate

    unknown = kvgate.predict(MODEL, vllm_version="foo")
    assert unknown.vllm_basis == "assumed"
    assert '"foo" is no vLLM release' in unknown.reasons[-1]
    newer = kvgate.predict(MODEL, vllm_version="99.0.0")
    assert "99.0.0 is newer than" in newer.reasons[-1]


def test_a_misspelt_option_is_not_taken_for_vllms(kvgate):
    result = kvgate("predict", MODEL, "--vlm-version", "0.9.0")
    assert result.code == 2
    assert "vLLM's own arguments follow --" in result.err


@pytest.mark.parametrize(
    ("image", "arguments", "rule"),
    [
        ("vllm/vllm-openai:v0.6.0", "", None),
        ("vllm/vllm-openai:v0.11.0", "", None),
        ("vllm/vllm-openai:0.11.0", "", None),
    ],
)
def test_the_model_flag_is_the_way_of_the_api_server_image(check, image, arguments, rule):
    result = check(compose(arguments, image), "--preview", "--profile", "all")
    rules = {found["rule"] for found in result.json["findings"]}
    assert "deprecated-engine-flag" not in rules
    assert result.json["units"][0]["vllm_version"] == image.partition(":")[2].removeprefix("v")


SECRETS = {
    "flag": compose(f"--api-key {SECRET}"),
    "abbreviated flag": compose(f"--api-ke {SECRET}"),
    "flag with equals": compose(f"--api-key={SECRET}"),
    "JSON": compose(f"""--hf-overrides '{{"auth_token": "{SECRET}"}}'"""),
    "broken JSON": compose(f"""--hf-overrides '{{"auth_token": "{SECRET}", "x": }}'"""),
    "escaped JSON": f"""services:
  a:
    image: vllm/vllm-openai:latest
    command: ["--model", "{MODEL}", "--swap-space", "4", "--hf-overrides", "{{\\"auth_token\\": \\"{SECRET}\\"}}"]
""",
    "address": compose(f"--tokenizer https://user:{SECRET}@example.org/x"),
    "model address": compose().replace(MODEL, f"s3://key:{SECRET}@bucket/x"),
    "variable": compose(extra=f"    environment:\n      MY_TOKEN: {SECRET}\n"),
    "address in a variable": compose(extra=f"    environment:\n      DATABASE_URL: postgres://u:{SECRET}@db\n"),
    "bearer": compose(extra=f"    environment:\n      AUTH: Bearer {SECRET}\n"),
    "access token": compose(extra=f"    environment:\n      GITHUB_PAT: {SECRET}\n"),
}


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "gitlab", "junit", "markdown"])
@pytest.mark.parametrize("where", SECRETS)
def test_no_secret_in_any_format(kvgate, tmp_path, where, form):
    text = SECRETS[where].replace("v0.11.0", "latest")
    assert SECRET in text
    (tmp_path / "compose.yaml").write_text(text)
    result = kvgate("check", ".", "--format", form, "-v", "--preview", "--profile", "all")
    assert result.code in (0, 1), result.err
    assert SECRET not in result.out + result.err


@pytest.mark.parametrize("form", ["text", "json", "sarif", "gitlab", "junit", "markdown"])
def test_no_name_can_open_a_workflow_command(kvgate, tmp_path, form):
    (tmp_path / "pod.yaml").write_text(
        'apiVersion: v1\nkind: Pod\nmetadata: {name: "evil\\n::error file=x::pwned\\u202e"}\nspec:\n  containers:\n'
        f"    - {{name: v, image: 'vllm/vllm-openai:latest', args: [--model, {MODEL}]}}\n"
    )
    if os.name != "nt":
        (tmp_path / "a\nb::error::x.yaml").write_text(compose(image="vllm/vllm-openai:latest"))
    result = kvgate("check", ".", "--format", form, "-v")
    assert not [line for line in (result.out + result.err).splitlines() if line.lstrip().startswith("::")]


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_a_file_name_that_is_no_text(kvgate, tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff.yaml", "w") as stream:
        stream.write(compose())
    result = kvgate("check", ".", "--format", "json")
    assert [unit["path"] for unit in result.json["units"]] == ["\\xff.yaml"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
def test_a_full_disk_is_no_internal_error(tmp_path):
    import subprocess
    import sys

    (tmp_path / "compose.yaml").write_text(compose())
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "kvgate", "check", "."],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 2
    assert b"standard output cannot be written" in result.stderr


def test_an_alias_bomb_ends(kvgate, tmp_path):
    lines = ["kind: Deployment", "spec:", "  image: vllm/vllm-openai:v0.11.0", "l0: &l0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, "kind2: *l11", ""]))
    assert kvgate("check", ".", "--format", "json").code == 0


def test_an_entry_that_matches_nothing_is_said(check, tmp_path):
    (tmp_path / "kvgate.yaml").write_text("version: 1\nunits:\n- match: {path: typo/*.yaml}\n  gpu: L4\n")
    (place,) = check(compose()).json["unchecked"]
    assert (place["path"], place["line"]) == ("kvgate.yaml", 3)
    assert place["reason"] == "this entry of units matches no server"


def test_a_compose_service_answers_to_its_name_as_container(check, tmp_path):
    (tmp_path / "kvgate.yaml").write_text(
        "version: 1\nunits:\n- match: {container: a}\n  workload: {peak_concurrency: 3}\n"
    )
    result = check(compose())
    assert result.json["unchecked"] == []
    assert result.json["units"][0]["prediction"]["workload"]["peak_concurrency"] == 3


def test_a_misspelt_annotation_is_said(check):
    (place,) = check(compose(extra='    labels: {kvgate.dev/peak-concurency: "900"}\n')).json["unchecked"]
    assert place["reason"] == (
        'kvgate knows no annotation "kvgate.dev/peak-concurency", did you mean "kvgate.dev/peak-concurrency"?'
    )


def test_python_arguments_are_checked():
    import kvgate
    from kvgate.errors import KvgateError

    assert kvgate.predict(MODEL, workload={"prompt_tokens": 5}).workload.prompt_tokens == 5
    for wrong in ({"workload": {"prompts": 5}}, {"gpu_memory_bytes": -5}, {"args": "--max-model-len 4096"}):
        with pytest.raises(KvgateError):
            kvgate.predict(MODEL, **wrong)
    for model in ("", "/nonexistent/config.json", "./nothing", "no-org/no-model"):
        with pytest.raises(KvgateError):
            kvgate.predict(model)
