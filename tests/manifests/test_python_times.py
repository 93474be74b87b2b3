"""A line of Python that runs several times: rounds of loops, calls of the function around it, objects of a class."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile

HEAD = "import os, subprocess, sys, threading\nfrom dataclasses import dataclass\n"


def lines(text: str) -> list[str]:
    """The command lines of the servers, with a question mark in front of each word that is not known."""
    file = SourceFile("serve.py", HEAD + dedent(text))
    return [words(unit) for unit in read_tree([file], named=frozenset({"serve.py"})).units]


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("for m, p in [('org/a', 1), ('org/b', 2)]:", ["org/a --port 1", "org/b --port 2"]),
        ("for m, p in {'org/a': 1, 'org/b': 2}.items():", ["org/a --port 1", "org/b --port 2"]),
        ("for m, p in zip(['org/a', 'org/b'], range(1, 3)):", ["org/a --port 1", "org/b --port 2"]),
        ("for p, m in enumerate(('org/a', 'org/b'), start=8):", ["org/a --port 8", "org/b --port 9"]),
        ("for p, (m, _) in enumerate([('org/a', 'x'), ('org/b', 'y')]):", ["org/a --port 0", "org/b --port 1"]),
        ("p = 1\nfor m in {'org/a': 5, 'org/b': 6}:", ["org/a --port 1", "org/b --port 1"]),
        ("for p, m in enumerate({'a': 'org/a', 'b': 'org/b'}.values(), 1):", ["org/a --port 1", "org/b --port 2"]),
        ("for p, (m, _) in enumerate({'org/a': 5, 'org/b': 6}.items()):", ["org/a --port 0", "org/b --port 1"]),
        ("for m, p in sorted({'org/b': 1, 'org/a': 2}.items()):", ["org/a --port 2", "org/b --port 1"]),
        ("for p, m in enumerate(list({'org/b': 1, 'org/a': 2}.keys())):", ["org/b --port 0", "org/a --port 1"]),
        ("D = {'x': ('org/a', 1), 'y': ('org/b', 2)}\nfor m, p in D.values():", ["org/a --port 1", "org/b --port 2"]),
        # not told apart
        ("for m, p in CONFIG:", ["?m --port ?p"]),
        ("for m, p in CONFIG.values():", ["?m --port ?p"]),
        ("for m, p in sorted([(['x'], 1), (['x'], 2)]):", ["?m --port ?p"]),
        (
            "D = {'x': ('org/a', 1)}\nif N:\n    D['y'] = ('org/b', 2)\nfor n, (m, p) in enumerate(D.values()):",
            ["?m --port ?p"],
        ),
        ("for p in range(1000):", ["?m --port ?p"]),
        ("for p in range(N):", ["?m --port ?p"]),
        ("for p in range(0, 4, 0):", ["?m --port ?p"]),
        ("for p in zip([1], CONFIG):", ["?m --port ?p"]),
    ],
)
def test_rounds_of_a_loop(head: str, expected: list[str]) -> None:
    assert lines(f"{head}\n    subprocess.Popen(['vllm', 'serve', m, '--port', str(p)])\n") == expected
    assigned = f"{head}\n    cmd = ['vllm', 'serve', m]\n    cmd += ['--port', f'{{p}}']\n    subprocess.Popen(cmd)\n"
    if "?" not in expected[0]:
        assert lines(assigned) == expected
    text = f"{head}\n    os.system(f'vllm serve {{m}} --port {{p}}')\n"
    assert [line.replace("{", "").replace("}", "") for line in lines(text)] == expected


def test_rounds_over_settings() -> None:
    servers = """
        SERVERS = [
            {"model": "org/a", "port": 8000, "args": ["--dtype", "half"]},
            {"model": "org/b", "port": 8001, "args": []},
        ]
        def start(server):
            command = ["vllm", "serve", server["model"], "--port", str(server["port"] + 1), *server["args"]]
            return subprocess.Popen(command)
    """
    expected = ["org/a --port 8001 --dtype half", "org/b --port 8002"]
    assert lines(servers + "\n        for one in SERVERS:\n            start(one)\n") == expected
    assert lines(servers + "\n        running = [start(one) for one in SERVERS]\n") == expected


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("start('org/a', 1)\nstart('org/b', port=2, dtype='half')",
         ["org/a --port 1", "org/b --port 2 --dtype half"]),
        ("start('org/a', 1)", ["org/a --port 1"]),
        ("start('org/a')\nstart('org/b')", ["org/a --port 8000", "org/b --port 8000"]),
        # again after a failure
        ("start('org/a')\nwhile True:\n    start('org/a')", ["org/a --port 8000"]),
        ("def both(model):\n    start(model, 1)\n    start(model, 2)\nboth('org/a')",
         ["org/a --port 1", "org/a --port 2"]),
        ("for n in range(2):\n    threading.Thread(target=start, args=('org/a', 8 + n)).start()",
         ["org/a --port 8", "org/a --port 9"]),
        ("start(CONFIG.model)\nstart('org/b')", ["?CONFIG.model --port 8000", "org/b --port 8000"]),
        ("if False:\n    start('org/a')\nstart('org/b')", ["org/b --port 8000"]),
    ],
)  # fmt: skip
def test_calls_of_a_function(calls: str, expected: list[str]) -> None:
    function = """
        def start(model, port=8000, **rest):
            command = ["vllm", "serve", model, "--port", str(port)]
            for name, value in rest.items():
                command += [f"--{name}", str(value)]
            return subprocess.Popen(command)
    """
    assert lines(dedent(function) + calls + "\n") == expected


def test_a_function_that_makes_command_lines() -> None:
    code = """
        def command(model, *more, length=None):
            words = ["vllm", "serve", model, *more]
            if length:
                words += ["--max-model-len", str(length)]
            return words
        subprocess.Popen(command("org/a"))
        subprocess.Popen(command("org/b", "--port", "1", length=512))
    """
    assert lines(code) == ["org/a", "org/b --port 1 --max-model-len 512"]


def test_what_a_function_sets_anew_is_not_what_it_is_given() -> None:
    code = """
        def start(model, port):
            model = find(model)
            subprocess.Popen(["vllm", "serve", model, "--port", str(port)])
        start("org/a", 1)
        start("org/b", 2)
    """
    assert lines(code) == ["?model --port 1", "?model --port 2"]


def test_objects_of_a_class() -> None:
    code = """
        class Server:
            def __init__(self, model, port):
                self.model = model
                self.port = port
            def start(self):
                self.process = subprocess.Popen(["vllm", "serve", self.model, "--port", str(self.port)])
        Server("org/a", 1).start()
        Server("org/b", port=2).start()
    """
    assert lines(code) == ["org/a --port 1", "org/b --port 2"]
    fields = """
        @dataclass
        class Server:
            model: str
            port: int = 8000
            def start(self):
                self.process = subprocess.Popen(["vllm", "serve", self.model, "--port", str(self.port)])
        Server("org/a", 1).start()
        Server(model="org/b").start()
    """
    assert lines(fields)[:1] == ["org/a --port 1"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("config or Config()", "org/m"),
        ("config if config is not None else Config()", "org/m"),
        ("config or load()", "?self.config.model"),
    ],
)
def test_settings_that_are_made_where_none_are_given(setting: str, expected: str) -> None:
    code = f"""
        class Config:
            model: str = "org/m"
        class Server:
            def __init__(self, config=None):
                self.config = {setting}
            def start(self):
                subprocess.Popen(["vllm", "serve", self.config.model])
        Server().start()
    """
    assert lines(code) == [expected]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("sys.argv[1] if len(sys.argv) > 1 else 'org/m'", "org/m"),
        ("os.environ['M'] if 'M' in os.environ else 'org/m'", "org/m"),
        ("'org/m' if 'M' not in os.environ else os.environ['M']", "org/m"),
        ("{'a': 'org/a', 'm': 'org/m'}[os.getenv('SIZE', 'm')]", "org/m"),
        ("{'a': 'org/a'}.get(os.getenv('SIZE', 'm'), 'org/m')", "org/m"),
        ("Models.SMALL.value", "org/m"),
        ("Models.SMALL", "org/m"),
    ],
)
def test_what_a_program_takes_without_settings(model: str, expected: str) -> None:
    head = "class Models(str, enum.Enum):\n    SMALL = 'org/m'\n    LARGE = 'org/l'\n"
    assert lines(f"{head}subprocess.run(['vllm', 'serve', {model}, '--port', str(8000 + 1)])\n") == [
        f"{expected} --port 8001"
    ]


@pytest.mark.parametrize(
    "environment",
    [
        "{**os.environ, 'CUDA_VISIBLE_DEVICES': '1', 'VLLM_X': 'y'}",
        "dict(os.environ, CUDA_VISIBLE_DEVICES='1', VLLM_X='y')",
        "os.environ | {'CUDA_VISIBLE_DEVICES': str(1), 'VLLM_X': 'y'}",
        "variables",
    ],
)
def test_variables_that_a_process_is_given(environment: str) -> None:
    head = "variables = os.environ.copy()\nvariables['CUDA_VISIBLE_DEVICES'] = '1'\nvariables.update({'VLLM_X': 'y'})\n"
    line = f"subprocess.Popen('VLLM_Z=1 vllm serve org/m', shell=True, env={environment})\n"
    (unit,) = read_tree([SourceFile("serve.py", HEAD + head + line)], named=frozenset({"serve.py"})).units
    found = {item.name: item.value.value for item in unit.environment if item.value is not None}
    assert found == {"CUDA_VISIBLE_DEVICES": "1", "VLLM_X": "y", "VLLM_Z": "1"}


def test_variables_tell_servers_apart() -> None:
    code = """
        def start(gpu):
            variables = dict(os.environ)
            variables["CUDA_VISIBLE_DEVICES"] = str(gpu)
            subprocess.Popen(["vllm", "serve", "org/m"], env=variables)
        for gpu in (0, 1):
            start(gpu)
    """
    file = SourceFile("serve.py", HEAD + dedent(code))
    found = read_tree([file], named=frozenset({"serve.py"})).units
    assert [[item.value and item.value.value for item in unit.environment] for unit in found] == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("**{**dict(model='org/m'), **({'seed': 1} if fast else {})}", "--model org/m --seed 1"),
        ("**{**dict(model='org/m'), **({} if fast else {'seed': 1})}", "--model org/m"),
        ("model='org/m', seed=max(8, 4) + min(1, 2)", "--model org/m --seed 9"),
    ],
)
def test_arguments_of_an_engine(arguments: str, expected: str) -> None:
    code = f"from vllm import AsyncEngineArgs\nfast = True\nAsyncEngineArgs({arguments})\n"
    assert lines(code) == [expected]


def test_arguments_of_an_engine_by_a_property() -> None:
    code = """
        from vllm import AsyncEngineArgs
        class Engine:
            seed = 1
            @property
            def options(self):
                return {"model": "org/m", "seed": self.seed}
            def load(self):
                return AsyncEngineArgs(**self.options)
    """
    assert lines(code) == ["--model org/m --seed 1"]


def test_engines_that_a_function_makes() -> None:
    code = """
        from vllm import AsyncEngineArgs
        from ray.serve.llm import LLMConfig
        def engine(model, length=1024):
            return AsyncEngineArgs(model=model, max_model_len=length)
        engine("org/a")
        engine("org/b", length=2048)
        rows = [("c", "org/c", 1), ("d", "org/d", 2)]
        models = [
            LLMConfig(model_loading_config={"model_id": n, "model_source": s}, engine_kwargs={"seed": k})
            for n, s, k in rows
        ]
    """
    assert lines(code) == [
        "--model org/a --max-model-len 1024",
        "--model org/b --max-model-len 2048",
        "--model org/c --served-model-name c --seed 1",
        "--model org/d --served-model-name d --seed 2",
    ]


def test_an_engine_for_a_batch_is_one() -> None:
    code = """
        from vllm import LLM
        for model in ("org/a", "org/b"):
            LLM(model=model, seed=1)
    """
    assert lines(code) == ["--model ?model --seed 1"]
