"""Where in a command line vLLM's own words begin, and what an image runs when it is given arguments alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.command import basename, names_program
from kvgate.shell.value import value_of_word
from kvgate.source.text import Text, Unresolved, Word


@record
class EntryPoint:
    """One way of starting the engine.

    Attributes:
        name: how it is called in reports.
        words: what stands in the command line, after ``python -m`` for modules.
        module: whether ``words[0]`` is a Python module.
        positional_model: whether the model may be given as a positional.
        renames: flags of its own (with dashes) for arguments of vLLM; "" for one that says nothing to vLLM.
        engine: the flag that chooses the engine, and its values that mean vLLM; "" where leaving it out does.
        adds: it hands vLLM arguments of its own where it is given none.
        knows: its flag for a model that it knows by name, where ``--model`` is not given.
    """

    name: str
    words: tuple[str, ...]
    module: bool
    positional_model: bool
    renames: tuple[tuple[str, str], ...] = ()
    engine: tuple[str, tuple[str, ...]] | None = None
    adds: bool = False
    knows: str = ""


# KServe's server embeds the engine and hands on its arguments
HUGGINGFACE_SERVER: Final = EntryPoint(
    "huggingfaceserver",
    ("huggingfaceserver",),
    True,
    False,
    (("model-id", "model"), ("model-dir", "model"), ("model-name", "served-model-name"),
     ("model-revision", "revision"), ("tokenizer-revision", "tokenizer-revision"),
     # its own (kserve 0.16, huggingfaceserver/__main__.py and kserve/model_server.py)
     *((flag, "") for flag in (
        "access-log-format", "backend", "configure-logging", "enable-docs-url", "enable-grpc", "enable-latency-logging",
        "grpc-port", "http-port", "log-config-file", "max-asyncio-workers", "max-threads", "predictor-host",
        "predictor-protocol", "predictor-request-timeout-seconds", "predictor-use-ssl", "workers",
     ))),
    ("backend", ("", "auto", "vllm")),
)  # fmt: skip

# PaddleX's (3.2 to 3.7): the file of --backend_config is one for vLLM's --config
_PADDLEX_RENAMES: Final = (
    ("model-dir", "model"), ("model-name", "served-model-name"), ("backend-config", "config"), ("backend", ""),
)  # fmt: skip


ENTRY_POINTS: Final = (
    EntryPoint("vllm serve", ("vllm", "serve"), False, True),
    EntryPoint("vllm serve", ("vllm-omni", "serve"), False, True),
    EntryPoint("vllm serve", ("vllm.entrypoints.cli.main", "serve"), True, True),
    EntryPoint("vllm serve", ("vllm.scripts", "serve"), True, True),
    EntryPoint("vllm serve", ("vllm", "serve"), True, True),
    EntryPoint("vllm.entrypoints.openai.api_server", ("vllm.entrypoints.openai.api_server",), True, False),
    EntryPoint("vllm.entrypoints.api_server", ("vllm.entrypoints.api_server",), True, False),
    EntryPoint("vllm.entrypoints.grpc_server", ("vllm.entrypoints.grpc_server",), True, False),
    EntryPoint("vllm_tgis_adapter", ("vllm_tgis_adapter",), True, False),
    EntryPoint("dynamo.vllm", ("dynamo.vllm",), True, False),
    HUGGINGFACE_SERVER,
    *(
        EntryPoint("genai_server", words, False, False, _PADDLEX_RENAMES, ("backend", ("vllm",)), True, "model-name")
        for words in (("paddleocr", "genai_server"), ("paddlex_genai_server",))
    ),
    # MinerU's serve its own model unless they are told another one; `auto` takes vLLM where that is installed
    EntryPoint("mineru-vllm-server", ("mineru-vllm-server",), False, False, adds=True),
    *(
        EntryPoint(words[-1], words, False, False, (("engine", ""),), ("engine", ("vllm",)), True)
        for words in (("mineru-openai-server",), ("mineru-kit", "vlm-server"))
    ),
    EntryPoint("qwen-asr-serve", ("qwen-asr-serve",), False, True),
    EntryPoint("trl vllm-serve", ("trl", "vllm-serve"), False, False),
)

# A program of somebody's own that is called after vLLM's server, where it is told a model and what only vLLM is told.
_WRAPPER: Final = EntryPoint("vllm-server", ("vllm-server",), False, False, adds=True)
_WRAPPER_NAME: Final = regex(r"vllm[-_](?:openai[-_]|api[-_])?serve[r]?")

# Of these, the programs that have flags of their own beside vLLM's.
OTHER_PROGRAMS: Final = frozenset(
    point.name for point in (*ENTRY_POINTS, _WRAPPER) if point.words[0].partition(".")[0] not in ("vllm", "vllm-omni")
)

# Programs whose words are text, names or targets, never a command that they run as the server.
_NO_LAUNCHERS: Final = frozenset(
    {
        "alias", "apk", "apt", "apt-get", "awk", "cat", "cp", "curl", "dpkg", "echo", "egrep",
        "false", "find", "git", "grep", "helm", "kill", "killall", "ls", "make", "man", "mkdir", "mv", "pgrep", "pip",
        "pip3", "pkill", "printf", "ps", "rm", "sed", "sleep", "tail", "tee", "test", "touch", "true", "type", "wget",
        "which", "whereis", "yum", "[", "[[",
    }
)  # fmt: skip

_PYTHON: Final = regex(r"(?:python|pypy)[0-9.]*(?:\.exe)?")


@record
class Entry:
    """An entry point found: its row, the words it was written with, the index of the first word after it, and what is
    not sure about it."""

    point: EntryPoint
    first: int
    after: int
    note: Unresolved | None = None


_PROGRAMS: Final = {
    name: tuple(point for point in ENTRY_POINTS if not point.module and point.words[0] == name)
    for name in {point.words[0] for point in ENTRY_POINTS if not point.module}
}
_PROGRAM_NAMES: Final = frozenset(name + suffix for name in _PROGRAMS for suffix in ("", ".exe"))


def find_entry(words: Sequence[Word]) -> Entry | None:
    """The first place where a command line starts vLLM; wrappers before it do not matter, other programs do."""
    if not words or basename(words[0]) in _NO_LAUNCHERS:
        return None
    for index, word in enumerate(words):
        entry = _program(words, index) or (_python(words, index) if word.resolved else None)
        if entry:
            return entry
    return _unknown_program(words) or _wrapper(words)


def _wrapper(words: Sequence[Word]) -> Entry | None:
    """``bin/vllm-server --model m --max-model-len 512``."""
    told = words[1:]
    if not _WRAPPER_NAME.fullmatch(basename(words[0])) or not names_model(told) or not count_vllm_flags(told):
        return None
    return Entry(_WRAPPER, 0, 1)


def _program(words: Sequence[Word], index: int) -> Entry | None:
    if not names_program(words[index], _PROGRAM_NAMES):
        return None
    for point in _PROGRAMS[basename(words[index]).removesuffix(".exe")]:
        if _follow(words, index + 1, point.words[1:]):
            return Entry(point, index, index + len(point.words))
    return None


def _unknown_program(words: Sequence[Word]) -> Entry | None:
    """``$VLLM_BIN serve org/m``: a program that the files do not name, by what its name stands for or by its flags."""
    if len(words) < 2 or words[0].resolved or basename(words[0]) or words[1].value != "serve":
        return None
    if _OTHER_ENGINE & _tokens(words[0].value.lower()):
        return None
    if not says_engine(words[0].value) and count_vllm_flags(words[2:]) < 2:
        return None
    return Entry(ENTRY_POINTS[0], 0, 2, Unresolved(words[0].value, "which program it is, the files do not say"))


def _python(words: Sequence[Word], index: int) -> Entry | None:
    value = words[index].value
    if value == "-m" and index + 1 < len(words):
        module = words[index + 1]
        if module.resolved:
            return _module(words, index, index + 1, module.value)
        # Dynamo's engines have one module each: `python -m dynamo.{{ framework }}`
        if len(module.unresolved) == 1 and module.value == "dynamo." + module.unresolved[0].text:
            point = next(point for point in ENTRY_POINTS if point.name == "dynamo.vllm")
            return Entry(point, index, index + 2, Unresolved(module.value, "which engine it is, the files do not say"))
        return None
    if value.startswith("-m") and "." in value:
        return _module(words, index, index, value[2:])
    if value.endswith(".py") and "/" in value and "vllm/" in value:
        # the module's file itself: python /opt/vllm/vllm/entrypoints/openai/api_server.py
        return _module(words, index, index, value.removesuffix(".py").replace("/", ".").lstrip("."))
    return None


def _module(words: Sequence[Word], first: int, at: int, name: str) -> Entry | None:
    for point in ENTRY_POINTS:
        if not point.module or not _follow(words, at + 1, point.words[1:]):
            continue
        if name == point.words[0] or (name.endswith("." + point.words[0]) and "." in point.words[0]):
            begin = first
            for back in range(first - 1, -1, -1):
                if _PYTHON.fullmatch(basename(words[back])):
                    begin = back
                    break
            return Entry(point, begin, at + len(point.words))
    return None


def _follow(words: Sequence[Word], at: int, expected: Sequence[str]) -> bool:
    return [word.value for word in words[at : at + len(expected)]] == list(expected)


def is_python_module(words: Sequence[Word]) -> bool:
    """Whether the words run some Python module or program text."""
    return any(word.value in ("-m", "-c") for word in words)


# -- images ------------------------------------------------------------------------------------------------------------

# Names of images that take engine arguments and nothing else, as published; the last component of the name decides.
_ENGINE_NAMES: Final = ("vllm-openai", "vllm-cpu", "vllm-cuda")
_ENGINE_REPOSITORIES: Final = ("vllm/vllm-tpu", "vllm/vllm-omni")
# Images with vllm in their name that serve no model themselves.
_NO_ENGINE: Final = frozenset(
    {
        "admin", "autoscaler", "bench", "benchmark", "benchmarks", "client", "console", "controller", "dashboard",
        "downloader", "epp", "exporter", "frontend", "gateway", "grafana", "guidellm", "indexer", "ingress", "loader",
        "loadtest", "locust", "manager", "metrics", "mock", "monitor", "operator", "orchestrator", "panel",
        "playground", "portal", "prometheus", "proxy", "puller", "render", "renderer", "router", "scheduler",
        "sidecar", "sim", "simulator", "studio", "supervisor", "swap", "tokenizer", "ui", "warden", "watchdog", "web",
        "webui",
    }
)  # fmt: skip
_OTHER_ENGINE: Final = frozenset(
    {
        "aphrodite", "infinity", "llamacpp", "lmdeploy", "localai", "mlx", "ollama", "sglang", "tei", "tensorrt", "tgi",
        "triton", "tritonserver", "trtllm", "xinference",
    }
)  # fmt: skip
_OTHER_ENGINE_NAMES: Final = (
    "text-generation-inference",
    "text-embeddings-inference",
    "llama.cpp",
    "llama-cpp",
    "mlc-llm",
)


@lru_cache(maxsize=1024)
def repository_of(image: str) -> str:
    """An image reference without registry port confusion, tag and digest."""
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    last = last.partition(":")[0]
    return f"{head}/{last}" if head else last


@lru_cache(maxsize=1024)
def _tokens(name: str) -> frozenset[str]:
    return frozenset(name.replace("_", "-").replace(".", "-").split("-"))


def takes_engine_arguments(image: str) -> bool:
    """Whether the image is a published vLLM server, whose entry point takes engine arguments."""
    repository = repository_of(image).lower()
    last = repository.rpartition("/")[2]
    known = last.startswith(_ENGINE_NAMES) or repository.endswith(_ENGINE_REPOSITORIES)
    return known and not _NO_ENGINE & _tokens(last)


def says_engine(name: str) -> bool:
    """Whether a name (of a unit file, a script) says vLLM, and not one of the programs around it."""
    tokens = _tokens(name.lower())
    return any("vllm" in token for token in tokens) and not _NO_ENGINE & tokens


def is_vllm_image(image: str) -> bool:
    """Whether the image's own name or tag (not its organisation) says vLLM, and not one of the programs around it."""
    last = repository_of(image).lower().rpartition("/")[2]
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2].lower()
    return (is_called_vllm(image) or "vllm" in _tokens(tag)) and not _NO_ENGINE & _tokens(last)


def is_called_vllm(image: str) -> bool:
    """Whether the image's own name says vLLM: a tag alone may say which engine another program is built with."""
    last = repository_of(image).lower().rpartition("/")[2]
    tokens = _tokens(last)
    return any(re.fullmatch(r"vllm[0-9]*", token) for token in tokens) and not _NO_ENGINE & tokens  # sdk2.20-vllm0.5.0


_VARIABLE: Final = regex(r"\$\{?(\w+)(?:[:?-][^/]*)?\}?")


def stands_for_vllm_image(image: str) -> bool:
    """Whether all that is known of an image is a variable, whose name says vLLM."""
    variable = _VARIABLE.fullmatch(image)
    return variable is not None and is_vllm_image(variable[1])


def is_other_program(image: str) -> bool:
    """Whether the image is known for something other than a vLLM server."""
    return is_companion(image) or is_other_engine(repository_of(image))


def is_other_engine(name: str) -> bool:
    """Whether a part of a name (of a repository of images, of a module) is that of another engine."""
    parts = name.lower().split("/")
    return any(_OTHER_ENGINE & _tokens(part) or any(name in part for name in _OTHER_ENGINE_NAMES) for part in parts)


def is_simulator(image: str) -> bool:
    """Whether an image is called after something that only answers as vLLM does."""
    return bool({"mock", "sim", "simulator"} & _tokens(repository_of(image).lower().rpartition("/")[2]))


def is_companion(image: str) -> bool:
    """Whether an image or a container is called after a program that stands beside servers (a router, a client)."""
    return bool(_NO_ENGINE & _tokens(repository_of(image).lower().rpartition("/")[2]))


# -- arguments without a command ---------------------------------------------------------------------------------------

# Flags that vLLM has and that other servers, routers and sidecars do not share under that name.
VLLM_FLAGS: Final = frozenset(
    {
        "block-size", "enable-auto-tool-choice", "enable-chunked-prefill", "enable-expert-parallel", "enable-lora",
        "enable-prefix-caching", "enforce-eager", "gpu-memory-utilization", "kv-cache-dtype", "kv-transfer-config",
        "limit-mm-per-prompt", "max-lora-rank", "max-loras", "max-model-len", "max-num-batched-tokens", "max-num-seqs",
        "no-enable-prefix-caching", "num-gpu-blocks-override", "pipeline-parallel-size", "served-model-name",
        "speculative-config", "swap-space", "tensor-parallel-size", "tool-call-parser",
    }
)  # fmt: skip


# Flags of other engines that vLLM does not have.
_FOREIGN_FLAGS: Final = frozenset(
    {
        "cache-type-k", "cache-type-v", "context-length", "ctx-size", "flash-attn", "gpu-layers", "hf-file", "hf-repo",
        "max-batch-tokens", "max-input-length", "max-input-tokens", "max-total-tokens", "mem-fraction-static", "mmproj",
        "n-gpu-layers", "n-predict", "num-shard",
    }
)  # fmt: skip


def flag_name(word: Word) -> str | None:
    """The long flag that a word begins with, with dashes; None for anything else."""
    value = word.text.value
    if not value.startswith("--"):
        return None
    match = re.match(r"--([A-Za-z][A-Za-z0-9_\-]*)", value)
    return match.group(1).replace("_", "-") if match else None


def renamed(words: Sequence[Word], renames: Sequence[tuple[str, str]]) -> tuple[Word, ...]:
    """Words with some flags under the names that vLLM has for them, and without those that say nothing to it."""
    table = dict(renames)
    result: list[Word] = []
    dropped = False
    for word in words:
        name = flag_name(word)
        if dropped and name is None and word.resolved and not word.value.startswith("-"):
            dropped = False  # the value of a flag that is left out
            continue
        dropped = False
        if name not in table:
            result.append(word)
            continue
        if not table[name]:
            dropped = "=" not in word.text.value
            continue
        end = 2 + len(name)
        head = Text.at(f"--{table[name]}", word.text.slice(0, end).span)
        result.append(Word(Text.join([head, word.text.slice(end, len(word.text))]), word.unresolved, word.splits))
    return tuple(result)


def has_other_backend(words: Sequence[Word], point: EntryPoint = HUGGINGFACE_SERVER) -> bool:
    """Whether a server that knows several engines (by default KServe's) serves with another one than vLLM."""
    if point.engine is None:
        return False
    flag, own = point.engine
    chosen = value_of_flag(words, flag)
    return (chosen.value if chosen is not None and chosen.resolved else "") not in own


def value_of_flag(words: Sequence[Word], flag: str) -> Word | None:
    """What the last of some flags of one name is given, behind it or after a ``=``."""
    found: Word | None = None
    for index, word in enumerate(words):
        if flag_name(word) != flag:
            continue
        _, equals, rest = word.value.partition("=")
        if equals:
            found = value_of_word(word).slice(len(word.value) - len(rest), len(word.value)).word()
        elif index + 1 < len(words):
            found = words[index + 1]
    return found


def is_rank(words: Sequence[Word], *, leads: bool = True) -> bool:
    """Whether a server is told that another node answers for it.

    Args:
        leads: a rank that is not known may be the first.
    """
    rank = value_of_flag(words, "node-rank")
    if rank is not None and rank.value != "0" and (rank.resolved or not leads):
        return True
    return any(flag_name(word) == "headless" for word in words)


def names_model(words: Sequence[Word]) -> bool:
    """Whether ``--model`` is among the words."""
    return any(flag_name(word) == "model" for word in words)


def count_vllm_flags(words: Sequence[Word]) -> int:
    """How many different flags that only vLLM has are among the words."""
    return len({name for word in words if (name := flag_name(word)) in VLLM_FLAGS})


def speaks_vllm(words: Sequence[Word], *, named: bool, stored: bool = False) -> bool:
    """Whether arguments without a known command are meant for vLLM.

    Args:
        named: something else (the image's or the object's name) says vLLM already.
        stored: the model is said beside the arguments.
    """
    flags = count_vllm_flags(words)
    if not flags and any(flag_name(word) in _FOREIGN_FLAGS for word in words):
        return False
    if names_model(words) or stored:
        return flags >= (0 if named else 2)
    return flags >= (1 if named else 3)
