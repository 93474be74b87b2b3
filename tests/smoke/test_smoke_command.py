"""What of a manifest reaches the command line of a smoke run, and what never does."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.config import Config, SmokeConfig
from kvgate.engine.flags import flags_of_version
from kvgate.manifests.collect import collect
from kvgate.manifests.read import read_tree
from kvgate.plan import ModelContext, PlanOverrides, ServingPlan, make_plan
from kvgate.smoke.command import PASSED, Command, build_command
from kvgate.smoke.server import server_environment
from kvgate.smoke.verify import SmokeError


def plan_of(folder: Path, arguments: list[str], config: Config, env: dict[str, str] | None = None) -> ServingPlan:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {
                    "name": "vllm",
                    "image": "vllm/vllm-openai:v0.32.0",
                    "args": arguments,
                    "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
                }
            ]
        },
    }
    (folder / "pod.json").write_text(json.dumps(manifest), encoding="utf-8")
    collection = collect([folder / "pod.json"], folder)
    (unit,) = read_tree(collection.files, folder).units
    return make_plan(unit, config, PlanOverrides(), ModelContext(root=folder))


def command_of(
    folder: Path,
    arguments: list[str],
    *,
    env: dict[str, str] | None = None,
    smoke: SmokeConfig | None = None,
    **more: Any,
) -> Command:
    config = Config(root=folder, models=more.pop("models", {}), smoke=smoke or SmokeConfig())
    plan = plan_of(folder, ["--model", more.pop("served", "org/name"), *arguments], config, env)
    return build_command(plan, config, python="python3", host="127.0.0.1", port=8000, **more)


def words_of(command: Command) -> list[str]:
    assert command.argv[:3] == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert command.argv[-2:] == ("--host=127.0.0.1", "--port=8000")
    return list(command.argv[3:-2])


def test_arguments_in_canonical_form(tmp_path: Path) -> None:
    arguments = [
        "--max_model_len=32k", "--gpu-memory-utilization", "0.85", "--no-enable-prefix-caching", "--enforce-eager",
        "-tp", "2", "--kv-cache-dtype", "fp8", "--speculative-config.method", "ngram",
        "--speculative-config.num_speculative_tokens", "3", "--served-model-name", "a", "b",
        "--limit-mm-per-prompt", '{"image": 2}', "--compilation-config", '{"cudagraph_mode": "FULL", "level": 3}',
    ]  # fmt: skip
    command = command_of(tmp_path, arguments)
    assert words_of(command) == [
        "--model=org/name", "--max-model-len=32000", "--gpu-memory-utilization=0.85", "--no-enable-prefix-caching",
        "--enforce-eager", "--tensor-parallel-size=2", "--kv-cache-dtype=fp8", "--served-model-name", "a", "b",
        '--limit-mm-per-prompt={"image": 2}', '--compilation-config={"cudagraph_mode": "FULL", "level": 3}',
        '--speculative-config={"method": "ngram", "num_speculative_tokens": 3}',
    ]  # fmt: skip
    assert command.left_out == ()


LOADING = [
    ["--trust-remote-code"],
    ["--tool-parser-plugin", "/tmp/evil.py"],
    ["--reasoning-parser-plugin", "/tmp/evil.py"],
    ["--middleware", "evil.middleware"],
    ["--worker-cls", "evil.Worker"],
    ["--worker-extension-cls", "evil.Extension"],
    ["--scheduler-cls", "evil.Scheduler"],
    ["--logits-processors", "evil:processor"],
    ["--io-processor-plugin", "evil"],
    ["--distributed-executor-backend", "evil.Executor"],
    ["--chat-template", "/etc/passwd"],
    ["--config", "/tmp/config.yaml"],
    ["--tokenizer", "/tmp/tokenizer"],
    ["--hf-config-path", "/tmp"],
    ["--load-format", "tensorizer"],
    ["--model-loader-extra-config", '{"a": 1}'],
    ["--kv-transfer-config", '{"kv_connector": "E", "kv_connector_module_path": "evil"}'],
    ["--lora-modules", "a=/tmp/lora"],
    ["--ssl-keyfile", "/etc/ssl/key"],
    ["--api-key", "sk-secret"],
    ["--download-dir", "/"],
    ["--allowed-local-media-path", "/"],
    ["--root-path", "/x"],
    ["--port", "22"],
    ["--host", "0.0.0.0"],
    ["--speculative-config", '{"model": "evil/model", "num_speculative_tokens": 3}'],
    ["--hf-overrides", '{"auto_map": {"AutoConfig": "evil/repo--x.Y"}}'],
    ["--hf-overrides", '{"architectures": ["evil.module.Class"]}'],
    ["--compilation-config", '{"backend": "evil.compile", "custom_passes": "x"}'],
    ["--quantization", "../../evil"],
    ["--served-model-name", "$(touch pwned)"],
]


@pytest.mark.parametrize(
    "arguments",
    [["--dtype", "$(touch pwned)"], ["--max-model-len", "`touch pwned`"], ["--revision", "--trust-remote-code"]],
    ids=" ".join,
)
def test_what_vllm_itself_refuses_stops_the_run(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SmokeError, match="is not resolved in the files"):
        command_of(tmp_path, arguments)


@pytest.mark.parametrize("arguments", LOADING, ids=[" ".join(words)[:50] for words in LOADING])
def test_what_could_load_code_or_files_stays_outside(tmp_path: Path, arguments: list[str]) -> None:
    command = command_of(tmp_path, arguments)
    assert words_of(command) in (["--model=org/name"], ["--model=org/name", "--hf-overrides={}"])
    if arguments[0] not in ("--port", "--host"):
        assert command.left_out
    assert "sk-secret" not in repr(command)


def test_remote_code_and_models_by_the_allow_list(tmp_path: Path) -> None:
    smoke = SmokeConfig(allow_trust_remote_code=("org/*",), allow_models=("draft/*",))
    draft = ["--speculative-config", '{"model": "draft/eagle", "num_speculative_tokens": 3}']
    command = command_of(tmp_path, ["--trust-remote-code", *draft], smoke=smoke)
    assert words_of(command) == [
        "--model=org/name", "--trust-remote-code",
        '--speculative-config={"model": "draft/eagle", "num_speculative_tokens": 3}',
    ]  # fmt: skip
    assert "--trust-remote-code" not in command_of(tmp_path, ["--trust-remote-code"], served="evil/x", smoke=smoke).argv


def test_model_paths_by_the_allow_list(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    models = {"/models/tiny": "tiny"}
    for served in ("/models/tiny", "/models/other", "tiny", "../etc", "s3://bucket/model"):
        with pytest.raises(SmokeError, match="is a path: allow it"):
            command_of(tmp_path, [], served=served, models=models)
    command = command_of(tmp_path, [], served="/models/tiny", models=models, smoke=SmokeConfig(allow_models=("tiny",)))
    assert words_of(command) == [f"--model={tmp_path / 'tiny'}"]
    # whoever sits at the command line may choose
    assert command_of(tmp_path, [], served="/models/x", model="org/chosen").model == "org/chosen"
    # a folder that is called like a model of the Hub is a path all the same
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(SmokeError, match="is a path"):
        command_of(tmp_path, [])


def test_an_argument_that_is_not_resolved_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match="--tensor-parallel-size is not resolved in the files"):
        command_of(tmp_path, ["--tensor-parallel-size", "$(TP_SIZE)"])


def test_dummy_weights(tmp_path: Path) -> None:
    assert words_of(command_of(tmp_path, [], dummy_weights=True)) == ["--model=org/name", "--load-format=dummy"]
    assert words_of(command_of(tmp_path, ["--load-format", "dummy"])) == ["--model=org/name", "--load-format=dummy"]


def test_the_environment_by_the_allow_list(tmp_path: Path) -> None:
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ATTENTION_BACKEND": "$(touch pwned)",
        "VLLM_PLUGINS": "evil",
        "LD_PRELOAD": "/tmp/evil.so",
        "PYTHONPATH": "/tmp",
        "HF_TOKEN": "hf_secret",
        "MY_FLAG": "x y",
    }
    command = command_of(tmp_path, [], env=env, smoke=SmokeConfig(allow_env=("MY_*",)))
    assert command.environment == {"VLLM_CPU_KVCACHE_SPACE": "1", "MY_FLAG": "x y"}
    assert "hf_secret" not in repr(command)
    runner = {
        "PATH": "/bin", "HF_TOKEN": "hf_own", "GITHUB_TOKEN": "g", "AWS_SECRET_ACCESS_KEY": "a", "LD_PRELOAD": "x",
        "PYTHONPATH": "y", "VLLM_CPU_KVCACHE_SPACE": "40", "VLLM_CACHE_ROOT": "/c",
    }  # fmt: skip
    assert server_environment(runner, command.environment) == {
        "VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1",
        "PATH": "/bin", "HF_TOKEN": "hf_own", "VLLM_CACHE_ROOT": "/c", "VLLM_CPU_KVCACHE_SPACE": "1",
        "MY_FLAG": "x y",
    }  # fmt: skip


def test_every_argument_that_passes_is_a_flag_of_some_release() -> None:
    from kvgate.tables import load_table

    assert {entry["dest"] for entry in load_table("engine/flags")["flags"].values()} >= PASSED


FLAGS = sorted(flags_of_version("0.32.0").spellings)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(FLAGS),
            st.text(st.characters(codec="ascii", min_codepoint=32, exclude_characters="\x7f"), max_size=30),
        ),
        max_size=6,
    )
)
def test_no_text_of_a_manifest_becomes_another_flag(tmp_path_factory: Any, pairs: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("p")
    arguments = [f"{flag}={value}" for flag, value in pairs]
    try:
        command = command_of(folder, arguments)
    except SmokeError:
        return
    spellings = flags_of_version("0.32.0").spellings
    for word in words_of(command):
        if word.startswith("-"):
            flag, _ = spellings[word.split("=", 1)[0]]
            assert flag.dest in PASSED | {"model", "load_format"}
        assert "\n" not in word
        assert "evil" not in word


def test_a_hostile_manifest_runs_nothing(tree: Any) -> None:
    """The real command line, up to a server process: what that process is given is all that matters."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "tiny",
            "annotations": {"kvgate.dev/prompt-tokens": "9", "kvgate.dev/peak-concurrency": "1"},
        },
        "spec": {
            "containers": [
                {
                    "name": "vllm",
                    "image": "vllm/vllm-openai-cpu:v0.32.0",
                    "command": ["/bin/sh", "-c"],
                    "args": [
                        "touch pwned; vllm serve /models/tiny --dtype float32 --enforce-eager --block-size 32"
                        " --num-gpu-blocks-override 1280 --tool-parser-plugin ./evil.py --trust-remote-code"
                        ' --chat-template "$(touch pwned2)"; touch pwned3'
                    ],
                    "env": [
                        {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"},
                        {"name": "VLLM_PLUGINS", "value": "evil"},
                        {"name": "PYTHONSTARTUP", "value": "./evil.py"},
                    ],
                }
            ]
        },
    }
    tree.write(json.dumps(manifest))
    (tree.folder / "evil.py").write_text("open('pwned4', 'w')", encoding="utf-8")
    tree.environment = {"VLLM_FAKE_SEEN": str(tree.folder / "seen.json"), "GITHUB_TOKEN": "ghs_x"}
    result = tree.smoke("--requests", "1")
    assert result.code == 0, result.err
    seen = json.loads((tree.folder / "seen.json").read_text(encoding="utf-8"))
    port = seen["argv"][-1]
    assert port.startswith("--port=")
    assert seen["argv"] == [
        "-m", "vllm.entrypoints.openai.api_server", f"--model={tree.folder / 'tiny'}", "--dtype=float32",
        "--enforce-eager", "--block-size=32", "--num-gpu-blocks-override=1280", "--host=127.0.0.1", port,
    ]  # fmt: skip
    assert seen["environ"]["VLLM_PLUGINS"] == ""
    assert not {"GITHUB_TOKEN", "PYTHONSTARTUP"} & set(seen["environ"])
    assert "kvgate-smoke-" in seen["cwd"]
    assert not list(tree.folder.glob("**/pwned*"))
    assert "left out: --tool-parser-plugin" in result.err


def test_a_dry_run_prints_the_command_and_starts_nothing(tree: Any, article: str) -> None:
    tree.write(article)
    result = tree.run("smoke", "pod.json", "--dry-run", "--python", "/opt/v/bin/python", "--port", "8123")
    assert (result.code, result.out) == (
        0,
        "VLLM_CPU_KVCACHE_SPACE=1 /opt/v/bin/python -m vllm.entrypoints.openai.api_server"
        f" --model={tree.folder}/tiny --dtype=float32 --enforce-eager --block-size=32 --num-gpu-blocks-override=1280"
        " --host=127.0.0.1 --port=8123\n",
    )
    assert tree.pids == []
