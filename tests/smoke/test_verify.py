# ruff: noqa: E501 - log lines are as long as they are
"""``kvgate verify``: a GPU server's log against the manifest that it should be of.

The figures are those of Llama 3.1 8B on one RTX 4090 (23.64 GiB): 131,072 bytes a token, 2,097,152 a block of 16, so
that 5.00 GiB are 2,560 blocks and 40,960 tokens, 2.50 requests of 16,384.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from kvgate.cli import cli
from kvgate.errors import KvgateError
from kvgate.measured import FILE, MeasuredError, Measurement, measured_terms, read_measurements, write_measurement

SCHEMA = json.loads(files("kvgate.report").joinpath("schemas/kvgate.smoke-1.json").read_text(encoding="utf-8"))
GIB = 1 << 30
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: rag-chat
  annotations: {{kvgate.dev/prompt-tokens: "7500", kvgate.dev/output-tokens: "1000", kvgate.dev/peak-concurrency: "20"}}
spec:
  template:
    spec:
      nodeSelector: {{nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090}}
      containers:
        - name: vllm
          image: vllm/vllm-openai:{version}
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, {arguments}]
          resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


def log_of(
    *,
    version: str = "0.19.1",
    arguments: dict[str, Any] | None = None,
    weights: float = 14.99,
    activation: float = 1.19,
    other: float = 0.1,
    available: float = 5.0,
    blocks: int | None = 2560,
    tokens: int = 40960,
    concurrency: float = 2.5,
    length: int = 16384,
    running: str = "",
) -> str:
    """A start-up of that release: requested is 0.9 x 23.64 = 21.28 GiB."""
    given = {"model": "meta-llama/Llama-3.1-8B-Instruct", "max_model_len": 16384, **(arguments or {})}
    head = "(EngineCore_DP0 pid=7) INFO 11-05 10:00:00 [fake.py:1] "
    lines = [
        f"vLLM server version {version}, serving model meta-llama/Llama-3.1-8B-Instruct",
        f"non-default args: {given!r}",
        f"Initializing a V1 LLM engine (v{version}) with config: model='meta-llama/Llama-3.1-8B-Instruct', "
        f"dtype=torch.bfloat16, max_seq_len={length}",
        f"Model loading took {weights:.2f} GiB memory and 9.870000 seconds",
        f"Available KV cache memory: {available:.2f} GiB",
        f"GPU KV cache size: {tokens:,} tokens",
        f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x",
        "Graph capturing finished in 3 secs, took 0.52 GiB",
        f"Free memory on device (23.20/23.64 GiB) on startup. Desired GPU memory utilization is (0.9, 21.28 GiB). Actual "
        f"usage is {weights:.2f} GiB for weight, {activation:.2f} GiB for peak activation, {other:.2f} GiB for non-torch "
        "memory, and 0.52 GiB for CUDAGraph memory.",
    ]
    if blocks is not None:
        lines.append(f"1 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: {blocks}")
    lines.append("Application startup complete.")
    return "\n".join(head + line for line in lines) + "\n" + running


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest()

    def manifest(self, arguments: str = "--max-model-len=16384", version: str = "v0.19.1") -> None:
        text = MANIFEST.format(arguments=arguments, version=version)
        (self.path / "deploy.yaml").write_text(text, encoding="utf-8")
        (self.path / "kvgate.yaml").write_text("version: 1\n", encoding="utf-8")

    def verify(self, log: str, *options: str, path: str | None = "deploy.yaml") -> tuple[int, Any, str]:
        """Exit code, verdict, words."""
        words = ["verify", *([path] if path else []), "--log", "-", "--format", "json", *options]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.path)
            result = CliRunner(env={"HF_HOME": str(self.path)}).invoke(cli, words, input=log.encode())
        code, said = result.exit_code, result.stderr
        if isinstance(result.exception, KvgateError):  # what the console script makes of it
            code, said = result.exception.exit_code, f"kvgate: {result.exception}\n"
        else:
            assert isinstance(result.exception, SystemExit | None), result.exception
        verdict = json.loads(result.stdout) if result.stdout else None
        if verdict is not None:
            jsonschema.validate(verdict, SCHEMA)
        return code, verdict, said

    def measured(self) -> "Folder":
        """What the log of this very configuration measured, recorded."""
        code, _, words = self.verify(log_of(), "--record")
        assert "recorded what Deployment/default/rag-chat/vllm measured" in words, words
        assert code in (0, 1)  # the estimate may be off; from now on it is not
        return self


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def check(verdict: Any, name: str) -> Any:
    return next(one for one in verdict["checks"] if one["check"] == name)


def term(verdict: Any, name: str) -> Any:
    return next(one for one in verdict["memory"] if one["term"] == name)


def test_the_pool_follows_exactly_from_the_measured_memory(folder: Folder) -> None:
    _, verdict, _ = folder.verify(log_of())
    assert verdict["unit"] == {"id": "Deployment/default/rag-chat/vllm", "path": "deploy.yaml", "line": 11}
    assert verdict["differences"] == []
    # 4.995 and 5.005 GiB are 2,557 and 2,562 blocks
    assert check(verdict, "num_gpu_blocks")["predicted"] == [2557, 2562]
    assert check(verdict, "num_gpu_blocks")["given"] == "the measured available memory"
    assert check(verdict, "size_tokens") == {
        "check": "size_tokens", "predicted": [40960, 40960], "measured": 40960, "holds": True, "given": "the measured blocks",
    }  # fmt: skip
    assert check(verdict, "max_concurrency")["predicted"] == [2.5, 2.5]
    assert check(verdict, "max_concurrency")["holds"]
    assert term(verdict, "weights")["measured"]["value"] == round(14.99 * GIB)


def test_without_the_blocks_the_tokens_must_follow_from_the_memory(folder: Folder) -> None:
    _, verdict, _ = folder.verify(log_of(blocks=None))
    assert check(verdict, "size_tokens")["predicted"] == [2557 * 16, 2562 * 16]
    assert check(verdict, "size_tokens")["holds"]
    # no number of blocks of 16 tokens gives 40,965
    code, verdict, _ = folder.verify(log_of(blocks=None, tokens=40965))
    assert code == 1
    assert check(verdict, "size_tokens")["holds"] is False


def test_what_was_recorded_is_what_is_predicted_next(folder: Folder) -> None:
    folder.measured()
    kept = json.loads((folder.path / FILE).read_text(encoding="utf-8"))
    (entry,) = kept["measurements"]
    assert entry["terms"]["weights"] == round(14.99 * GIB)
    # the rest is what makes the sum: 21.28 - 14.99 - 1.19 - 5.00
    assert entry["terms"]["non_torch"] == pytest.approx(0.10 * GIB, abs=0.01 * GIB)
    code, verdict, _ = folder.verify(log_of())
    assert (code, verdict["outcome"], verdict["cause"]) == (0, "holds", None)
    available = term(verdict, "kv_cache_available")
    assert available["predicted"]["basis"] == "measured"
    assert available["predicted"]["bytes"] == pytest.approx(5 * GIB, abs=0.02 * GIB)
    # within five percent of every term
    assert available["predicted"]["low"] < 4.3 * GIB
    # another start, a little off, holds as well; one that is far off does not
    assert folder.verify(log_of(available=4.8, blocks=2457, tokens=39312, concurrency=2.4, weights=15.19))[0] == 0
    code, verdict, _ = folder.verify(log_of(available=2.0, blocks=1024, tokens=16384, concurrency=1.0))
    assert (code, verdict["outcome"]) == (1, "contradicted")


def test_a_measurement_holds_until_something_that_shapes_it_changes(folder: Folder) -> None:
    folder.measured()
    folder.manifest("--max-model-len=16384, --gpu-memory-utilization=0.8")
    _, verdict, _ = folder.verify(log_of())
    # weights and activations do not depend on the share of the GPU: 0.8 x 23.64 - 16.28
    assert term(verdict, "kv_cache_available")["predicted"]["basis"] == "measured"
    assert term(verdict, "kv_cache_available")["predicted"]["bytes"] == pytest.approx(2.63 * GIB, abs=0.02 * GIB)
    folder.manifest("--max-model-len=16384, --max-num-batched-tokens=16384")
    _, verdict, _ = folder.verify(log_of())
    assert term(verdict, "weights")["predicted"]["basis"] == "measured"
    assert term(verdict, "activation_peak")["predicted"]["basis"] != "measured"
    folder.manifest("--max-model-len=16384", version="v0.20.0")
    _, verdict, _ = folder.verify(log_of(version="0.20.0"))
    assert term(verdict, "weights")["predicted"]["basis"] != "measured"


def test_the_first_cause_names_the_terms_and_the_argument(folder: Folder) -> None:
    folder.measured()
    log = log_of(
        arguments={"max_num_batched_tokens": 16384}, activation=2.99, weights=15.09, available=3.1, blocks=1587,
        tokens=25392, concurrency=1.55,
    )  # fmt: skip
    code, verdict, _ = folder.verify(log)
    assert (code, verdict["outcome"]) == (1, "contradicted")
    assert verdict["cause"] == (
        "the pool is 1.9 GiB short: activation peak 1.8, weights 0.1: max_num_batched_tokens was 16,384, the manifest "
        "does not set it"
    )


def test_a_log_of_another_deployment(folder: Folder) -> None:
    code, verdict, _ = folder.verify(log_of(version="0.11.0"))
    assert (code, verdict["outcome"]) == (1, "contradicted")
    assert verdict["cause"] == "this is not the deployment: vllm_version was 0.11.0, the manifest says 0.19.1"
    code, verdict, _ = folder.verify(log_of().replace("Llama-3.1-8B-Instruct", "Llama-3.2-1B"))
    assert verdict["cause"].startswith("this is not the deployment: model was meta-llama/Llama-3.2-1B")
    code, verdict, _ = folder.verify(log_of().replace("23.20/23.64", "43.90/44.40"))
    assert verdict["cause"].startswith("this is not the deployment: gpu_memory was 44.40 GiB, the manifest says 23.6")
    _, _, words = folder.verify(log_of(version="0.11.0"), "--record")
    assert words == "nothing recorded: the log is not of the deployment that the manifest describes\n"


WRONG = {
    "kv dtype": ("--max-model-len=16384, --kv-cache-dtype=fp8", "num_gpu_blocks", "kv_cache_dtype was not set, the manifest says fp8"),
    "length": ("--max-model-len=8192", "max_model_len", "max_model_len was 16,384, the manifest says 8,192"),
    "block size": ("--max-model-len=16384, --block-size=32", "num_gpu_blocks", "block_size was not set, the manifest says 32"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "name", "reason"), WRONG.values(), ids=list(WRONG))
def test_wrong_manifests_are_caught(folder: Folder, arguments: str, name: str, reason: str) -> None:
    folder.measured()
    folder.manifest(arguments)
    code, verdict, _ = folder.verify(log_of())
    assert (code, verdict["outcome"]) == (1, "contradicted")
    assert check(verdict, name)["holds"] is False
    assert verdict["cause"].endswith(reason)
    if name == "num_gpu_blocks":
        assert "a block takes about 2,097,152 bytes" in verdict["cause"]


def test_a_refusal_that_was_predicted(folder: Folder) -> None:
    folder.measured()
    folder.manifest("--max-model-len=131072")
    log = log_of(arguments={"max_model_len": 131072}).split("GPU KV cache size")[0].rsplit("\n", 1)[0] + (
        "\n(EngineCore_DP0 pid=7) ERROR 11-05 10:00:00 [core.py:1] ValueError: To serve at least one request with the "
        "models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
        "(5.00 GiB). Based on the available memory, the estimated maximum model length is 40944.\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    code, verdict, _ = folder.verify(log)
    assert (code, verdict["outcome"]) == (1, "refused")
    assert verdict["cause"] == (
        "the server did not start: one request of max_model_len does not fit the KV cache: 16.00 GiB needed, 5.00 GiB "
        "available; up to 40,944 tokens would fit; this was predicted"
    )
    assert verdict["refusal"]["expected"]
    # what it needs and what would fit is the prediction's own arithmetic
    assert verdict["refusal"]["needed"] == 131072 * 131072
    assert [line["line"] for line in verdict["lines"]] == [6, 7]


RUNNING = (
    "INFO 11-05 10:0{at}:00 [loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.8 "
    "tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, {more}GPU KV cache usage: {usage}%, Prefix cache hit rate: "
    "17.5%\n"
)


def running(*rows: tuple[int, int, float], preemptions: int = 0) -> str:
    more = f"Preemptions: {preemptions}, " if preemptions else ""
    return "".join(
        RUNNING.format(at=at, running=one[0], waiting=one[1], usage=one[2], more=more if at == 0 else "")
        for at, one in enumerate(rows)
    )


def test_the_peak_is_explained_as_the_article_does_by_hand(folder: Folder) -> None:
    folder.measured()
    _, verdict, _ = folder.verify(log_of(running=running((4, 16, 98.3), (3, 12, 80.0), preemptions=3)))
    assert verdict["running"] == {
        "peak_running": 4, "waiting_at_peak": 16, "peak_waiting": 16, "peak_usage": 0.983, "hit_rate": 0.175,
        "preemptions": 3, "samples": 2, "explained": True,
        "words": "4 ran at once with 16 waiting: 4 requests of the declared workload are sustained and 5 admitted",
    }  # fmt: skip
    assert [one["running"] for one in verdict["timeline"]] == [4, 3]
    _, verdict, _ = folder.verify(log_of(running=running((2, 0, 10.0))))
    assert verdict["running"]["explained"] is None
    assert verdict["running"]["words"].startswith("nothing waited: 2 at once is what clients asked for")
    _, verdict, _ = folder.verify(log_of(running=running((16, 3, 99.0))))
    assert verdict["running"]["explained"] is False
    assert "16 ran at once with 3 waiting, more than predicted" in verdict["running"]["words"]
    assert "requests of about 2," in verdict["running"]["words"]


def test_an_assumed_release_is_taken_from_the_log(folder: Folder) -> None:
    folder.manifest(version="latest")
    _, verdict, _ = folder.verify(log_of())
    assert verdict["prediction"]["vllm"]["version"] == "0.19.1"
    assert [one for one in verdict["differences"] if one["decisive"]] == []


def test_the_unit_that_the_log_fits(folder: Folder) -> None:
    first = (folder.path / "deploy.yaml").read_text(encoding="utf-8")
    second = first.replace("rag-chat", "other").replace("16384", "8192")
    (folder.path / "deploy.yaml").write_text(first + "---\n" + second, encoding="utf-8")
    _, verdict, _ = folder.verify(log_of())
    assert verdict["unit"]["id"] == "Deployment/default/rag-chat/vllm"
    code, _, words = folder.verify(log_of(version="0.11.0"))
    assert (code, words.split(":")[1].strip()) == (2, "several units could be meant")
    _, verdict, _ = folder.verify(log_of(), "--unit", "other/vllm")
    assert verdict["unit"]["id"] == "Deployment/default/other/vllm"
    code, _, words = folder.verify(log_of(), "--unit", "nobody")
    assert (code, words.startswith('kvgate: there is no unit "nobody"')) == (2, True)


def test_a_log_on_its_own_is_explained(folder: Folder) -> None:
    code, verdict, _ = folder.verify(log_of(), path=None)
    assert (code, verdict["unit"], verdict["outcome"]) == (0, None, "holds")
    assert verdict["prediction"]["model"]["id"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert check(verdict, "num_gpu_blocks")["predicted"] == [2557, 2562]
    # tokens that do not follow from the memory
    code, verdict, _ = folder.verify(log_of(blocks=1280, tokens=20480, concurrency=1.25), path=None)
    assert (code, verdict["outcome"]) == (1, "contradicted")
    # of a model that nobody knows only the figures are left
    log = log_of().replace("meta-llama/Llama-3.1-8B-Instruct", "someone/unknown")
    code, verdict, _ = folder.verify(log, path=None)
    assert (code, verdict["outcome"]) == (0, "unknown")
    assert verdict["server"]["figures"]["KV cache"] == "5.00 GiB"
    assert verdict["server"]["figures"]["tokens"] == "40,960"


def test_a_torn_log_says_how_far_it_goes(folder: Folder) -> None:
    folder.measured()
    torn = log_of().split("GPU KV cache size")[0]
    _, verdict, _ = folder.verify(torn)
    assert "the log ends before the server is ready" in verdict["notes"]
    assert verdict["outcome"] == "holds"
    code, verdict, _ = folder.verify(torn.split("Available KV")[0])
    assert (code, verdict["outcome"]) == (2, "unknown")


@pytest.mark.parametrize("text", ["", "nothing of vLLM's\n", "\x00\xff binary"])
def test_no_log(folder: Folder, text: str) -> None:
    code, verdict, words = folder.verify(text)
    assert (code, verdict, words) == (2, None, "kvgate: --log: nothing in it is a line of vLLM's\n")


def test_what_cannot_be_read(folder: Folder) -> None:
    code, _, words = folder.verify(log_of(), path="nowhere.yaml")
    assert (code, words) == (2, "kvgate: nowhere.yaml: no such file or directory\n")
    (folder.path / ".kvgate").mkdir()
    (folder.path / FILE).write_text("{}", encoding="utf-8")
    code, _, words = folder.verify(log_of())
    assert code == 2
    assert words.startswith("kvgate: .kvgate/measured.json: not what `kvgate verify --record` writes")


# --- the file ---------------------------------------------------------------------------------------------------------


def measurement(**changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "unit": "u", "model": "org/name", "vllm_version": "0.19.1", "gpu": "NVIDIA L4", "recorded": "2026-11-29",
        "arguments": {"max_num_seqs": 64}, "terms": {"weights": 5, "activation_peak": 3, "non_torch": 1},
    }  # fmt: skip
    return Measurement(**{**fields, **changes})


def terms_for(kept: tuple[Measurement, ...], values: dict[str, Any], **changes: Any) -> Any:
    asked = {"unit": "u", "model": "org/name", "vllm_version": "0.19.1", "gpu": "NVIDIA L4", **changes}
    found = measured_terms(kept, values=values, tolerance=0.05, **asked)
    return found and dict(found.terms)


def test_terms_by_what_shapes_them() -> None:
    kept = (measurement(),)
    assert terms_for(kept, {"max_num_seqs": 64}) == {"weights": 5, "activation_peak": 3, "non_torch": 1}
    # the token budget and the sequences shape the activation peak, neither the weights nor what lies outside torch
    assert terms_for(kept, {"max_num_seqs": 32}) == {"weights": 5, "non_torch": 1}
    assert terms_for(kept, {}) == {"weights": 5, "non_torch": 1}
    assert terms_for(kept, {"max_num_seqs": 64, "tensor_parallel_size": 2}) is None
    assert terms_for(kept, {"max_num_seqs": 64, "port": 1}) == {"weights": 5, "activation_peak": 3, "non_torch": 1}
    for changes in ({"model": "x"}, {"vllm_version": "0.20.0"}, {"gpu": "NVIDIA L40S"}, {"gpu": None}):
        assert terms_for(kept, {"max_num_seqs": 64}, **changes) is None
    # another unit with the same model and GPU may use it; its own measurement comes first
    own = measurement(unit="v", terms={"weights": 6, "activation_peak": 4, "non_torch": 2})
    assert terms_for(kept, {"max_num_seqs": 64}, unit="v")["weights"] == 5
    assert terms_for((*kept, own), {"max_num_seqs": 64}, unit="v")["weights"] == 6


def test_the_file_keeps_one_measurement_a_unit(tmp_path: Path) -> None:
    assert read_measurements(tmp_path) == ()
    assert write_measurement(tmp_path, measurement()) == FILE
    write_measurement(tmp_path, measurement(recorded="2026-12-01", terms={"weights": 7}))
    write_measurement(tmp_path, measurement(unit="v"))
    kept = read_measurements(tmp_path)
    assert [(one.unit, one.recorded) for one in kept] == [("u", "2026-12-01"), ("v", "2026-11-29")]
    assert kept[0].terms == {"weights": 7}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "kvgate.measured/1"}', '{"schema": "x", "measurements": []}']
)
def test_a_file_that_is_not_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / ".kvgate").mkdir()
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(MeasuredError, match=r"measured\.json"):
        read_measurements(tmp_path)


# --- logs on their own, as people have them ---------------------------------------------------------------------------

HYBRID = (
    "INFO 11-05 10:00:00 [api_server.py:1] vLLM API server version 0.10.2\n"
    "INFO 11-05 10:00:00 [utils.py:1] non-default args: {{'model': 'Qwen/Qwen3-Next-80B-A3B-Instruct', "
    "'tensor_parallel_size': 2, 'max_model_len': 262144, 'dtype': 'bfloat16', 'enable_prefix_caching': False}}\n"
    "INFO 11-05 10:00:00 [gpu_worker.py:1] Available KV cache memory: 44.59 GiB\n"
    "INFO 11-05 10:00:00 [kv_cache_utils.py:1] GPU KV cache size: {tokens:,} tokens\n"
    "INFO 11-05 10:00:00 [kv_cache_utils.py:1] Maximum concurrency for 262,144 tokens per request: {times:.2f}x\n"
    "INFO:     Application startup complete.\n"
)


def test_several_numbers_of_blocks_are_printed_as_the_same_tokens(folder: Folder) -> None:
    """Up to 0.20.0 the tokens of a hybrid are blocks // groups x block size: 7,161 to 7,163 blocks over four groups are
    1,790 x 544 tokens, and the concurrency of 7,161 is 14.76x, that of 7,163 is 14.77x. Both are right."""
    for times in (14.76, 14.77):
        code, verdict, _ = folder.verify(HYBRID.format(tokens=973760, times=times), path=None)
        assert (code, verdict["outcome"], verdict["cause"]) == (0, "holds", None)
        assert check(verdict, "max_concurrency")["predicted"] == pytest.approx([14.765, 14.769], abs=0.001)
    code, verdict, _ = folder.verify(HYBRID.format(tokens=973760, times=14.78), path=None)
    assert (code, check(verdict, "max_concurrency")["holds"]) == (1, False)


def test_tokens_that_no_number_of_blocks_gives(folder: Folder) -> None:
    log = HYBRID.format(tokens=973761, times=14.77).replace("Available KV cache memory: 44.59 GiB", "")
    code, verdict, _ = folder.verify(log, path=None)
    assert code == 1
    assert verdict["cause"] == (
        "the pool is printed as 973,761 tokens, predicted 974,304 from the nearest whole number of blocks"
    )


def test_the_length_that_a_refusing_server_names_is_checked(folder: Folder) -> None:
    """36 layers x 8 KV heads x 128 x 2 x 2 bytes are 147,456 a token: 4.465 to 4.475 GiB are 2,032 to 2,036 blocks."""
    log = (
        "INFO 11-05 10:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
        "INFO 11-05 10:00:00 [utils.py:1] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 32768}\n"
        "ValueError: To serve at least one request with the models's max seq len (32768), (4.50 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (4.47 GiB). Based on the available memory, the estimated "
        "maximum model length is %d. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine.\n"
    )
    code, verdict, _ = folder.verify(log % 32560, path=None)
    assert (code, verdict["outcome"], verdict["refusal"]["expected"]) == (1, "refused", None)
    assert verdict["cause"] == (
        "the server did not start: one request of max_model_len does not fit the KV cache: 4.50 GiB needed, 4.47 GiB "
        "available; up to 32,560 tokens would fit"
    )
    assert check(verdict, "estimated_max_model_len") == {
        "check": "estimated_max_model_len", "predicted": [32512, 32576], "measured": 32560, "holds": True,
        "given": "the memory that was available",
    }  # fmt: skip
    _, verdict, _ = folder.verify(log % 30000, path=None)
    assert check(verdict, "estimated_max_model_len")["holds"] is False


def test_a_model_that_is_not_at_hand(folder: Folder) -> None:
    log = log_of().replace("meta-llama/Llama-3.1-8B-Instruct", "/models/Phi-4")
    _, verdict, _ = folder.verify(log, path=None)
    assert verdict["notes"] == [
        'no prediction: the configuration of "/models/Phi-4" is not at hand (/models/Phi-4: no such file or directory); '
        "models: in kvgate.yaml says what it is, --online fetches a model of the Hub"
    ]


def test_what_the_log_does_not_print_is_named_too(folder: Folder) -> None:
    """Releases before 0.10.2 print what loading took and what was left: the rest is what neither accounts for."""
    folder.measured()
    log = log_of(weights=15.09, available=3.1, blocks=1587, tokens=25392, concurrency=1.55)
    short = "".join(line for line in log.splitlines(keepends=True) if "Free memory on device" not in line)
    _, verdict, _ = folder.verify(short)
    assert verdict["cause"] == (
        "the pool is 1.9 GiB short: weights 0.1, 1.8 in what the log does not print (activation peak, non-torch)"
    )


@pytest.mark.parametrize(("total", "same"), [("22.30", True), ("24.00", True), ("21.50", False), ("31.36", False)])
def test_error_correction_and_other_drivers_make_no_other_gpu(folder: Folder, total: str, same: bool) -> None:
    """An RTX 4090 has 23.6 GiB; error correction would leave 22.1, Windows shows 24."""
    _, verdict, _ = folder.verify(log_of().replace("23.20/23.64", f"21.00/{total}"))
    assert ([one["name"] for one in verdict["differences"]] == []) == same
