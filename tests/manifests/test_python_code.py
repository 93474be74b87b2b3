"""Python that starts vLLM: engines, command lines, Ray Serve."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "serve.py") -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, dedent(text))], named=frozenset({path})).units)


def one(text: str) -> ServeUnit:
    (found,) = units(text)
    return found


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def test_an_offline_engine_is_a_kind_of_its_own() -> None:
    unit = one(
        """\
        from vllm import LLM, SamplingParams
        NAME = "org/m"

        def main(length: int = 4 * 1024):
            llm = LLM(model=NAME, max_model_len=length, enforce_eager=True, enable_prefix_caching=False,
                      quantization=None, limit_mm_per_prompt={"image": 2},
                      tensor_parallel_size=torch.cuda.device_count())

        main()
        """
    )
    assert unit.kind == "offline-engine"
    assert unit.span.line == 5
    assert words(unit) == (
        "--model org/m --max-model-len 4096 --enforce-eager --no-enable-prefix-caching --limit-mm-per-prompt "
        '{"image": 2} --tensor-parallel-size ?torch.cuda.device_count()'
    )
    model = unit.words[1].text
    assert (model.span.line, model.span.text) == (2, "org/m")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("os.environ", "org/m --seed 3"),
        ("os.environ.copy()", "org/m --seed 3"),
        ("dict(os.environ)", "org/m --seed 3"),
        ("MINE", "org/m --seed 3"),
        ("MIXED", "org/m --seed ?env.get('SEED', '3')"),
        ("yaml.safe_load(text)", "org/m --seed ?env.get('SEED', '3')"),
    ],
)
def test_the_environment_under_another_name(given: str, expected: str) -> None:
    (unit,) = units(
        f"""\
        import os

        MINE = os.environ
        MIXED = os.environ if MINE else text

        def line(model, env):
            return ["vllm", "serve", model, "--seed", env.get('SEED', '3')]

        argv = line("org/m", {given})
        os.execvp(argv[0], argv)
        """
    )
    assert words(unit) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('vllm.LLM("org/m")', "--model org/m"),
        ('LLM(model=os.environ.get("MODEL", "org/m"))', "--model org/m"),
        ('LLM(model=os.environ["MODEL"])', "--model ?os.environ[\"MODEL\"]"),
        ('LLM(model=os.getenv("MODEL") or "org/m", max_num_seqs=int(os.getenv("SEQS", "8")))',
         "--model org/m --max-num-seqs 8"),
        ('LLM(model=f"{ORG}/m", dtype=str("half"))', "--model org/m --dtype half"),
        ('LLM(model=ORG + "/" + NAME)', "--model ?org/NAME"),
        ('LLM(**{"model": "org/m", "seed": 1})', "--model org/m --seed 1"),
        ("LLM(**options)", "?options"),
        ("LLM(model=Config.MODEL)", "--model org/of-class"),
        ("LLM(model=args.model, max_model_len=args.max_model_len)",
         "--model org/a --max-model-len ?args.max_model_len"),
        ("Other(model='org/m')", None),
        ("langchain.LLM(model='org/m')", None),
    ],
)  # fmt: skip
def test_values(code: str, expected: str | None) -> None:
    found = units(
        "import os, argparse, vllm, langchain\nfrom vllm import LLM\nfrom other import Other\nORG = 'org'\n"
        "class Config:\n    MODEL = 'org/of-class'\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--model', default='org/a')\n"
        "parser.add_argument('--max-model-len', type=int)\nargs = parser.parse_args()\n"
        f"engine = {code}\n"
    )
    assert [words(unit) for unit in found] == ([] if expected is None else [expected])


def test_engine_arguments_of_a_deployment() -> None:
    unit = one(
        """\
        import os
        from ray import serve
        from vllm.engine.arg_utils import AsyncEngineArgs
        os.environ["VLLM_USE_V1"] = "0"

        @serve.deployment(num_replicas=2, ray_actor_options={"num_gpus": 4.0})
        class Model:
            def __init__(self, **kwargs):
                self.engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(dtype="auto", **kwargs))

        app = Model.bind(model="org/m", tensor_parallel_size=4)
        """
    )
    assert (unit.kind, unit.span.line) == ("python", 11)
    assert words(unit) == "--dtype auto --model org/m --tensor-parallel-size 4"
    assert ([request.count for request in unit.gpu_requests], unit.replicas) == ([4], 2)
    assert [(item.name, item.value and item.value.value) for item in unit.environment] == [("VLLM_USE_V1", "0")]


def test_a_deployment_whose_engine_asks_for_the_gpus() -> None:
    unit = one(
        """\
        from ray import serve
        from vllm import AsyncEngineArgs, AsyncLLMEngine

        @serve.deployment(ray_actor_options={"num_gpus": 0, "num_cpus": 2})
        class Model:
            def __init__(self):
                self.engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model="org/m", tensor_parallel_size=8))
        """
    )
    assert (words(unit), unit.gpu_requests) == ("--model org/m --tensor-parallel-size 8", ())


def test_a_dictionary_filled_in_steps() -> None:
    unit = one(
        """\
        from vllm import AsyncEngineArgs
        def build(fast):
            options = dict(model="org/m")
            options["max_model_len"] = 2048
            if fast:
                options["enforce_eager"] = True
            return AsyncEngineArgs(**options)
        """
    )
    assert words(unit) == "--model org/m --max-model-len 2048 ?--enforce-eager"
    assert unit.words[-1].unresolved[0].reason == "only if fast"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('subprocess.run(["vllm", "serve", MODEL, "--port", str(8000)])', "org/m --port 8000"),
        ('subprocess.Popen("vllm serve org/m --max-model-len 1k", shell=True)', "org/m --max-model-len 1k"),
        ('os.system(f"python -m vllm.entrypoints.openai.api_server --model {MODEL} &")', "--model org/m"),
        ('os.execvp("vllm", ["vllm", "serve", MODEL])', "org/m"),
        ('subprocess.run([sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL])',
         "--model org/m"),
        ('subprocess.run(shlex.split("vllm serve org/m -tp 2"))', "org/m -tp 2"),
        ('subprocess.run(["bash", "-c", "exec vllm serve org/m"])', "org/m"),
        ('subprocess.run(["docker", "run", "--gpus", "all", "vllm/vllm-openai", "--model", MODEL])', "--model org/m"),
        ('subprocess.run(["vllm", "bench", "serve", "--model", MODEL])', None),
        ('print("vllm serve org/m")', None),
        ('subprocess.run(["pkill", "-f", "vllm serve"])', None),
    ],
)  # fmt: skip
def test_command_lines(code: str, expected: str | None) -> None:
    found = units(f"import os, subprocess, shlex, sys\nMODEL = 'org/m'\n{code}\n")
    assert [words(unit) for unit in found] == ([] if expected is None else [expected])


def test_a_command_line_built_in_steps() -> None:
    unit = one(
        """\
        import subprocess, modal
        app = modal.App()

        @app.function(gpu="H100:2", image=image)
        def serve():
            cmd = ["vllm", "serve", "org/m"]
            cmd += ["--max-model-len", "4096"]
            cmd.append("--enforce-eager")
            if LORA:
                cmd.extend(["--enable-lora"])
            cmd += EXTRA
            subprocess.Popen(" ".join(cmd), shell=True)
        """
    )
    assert words(unit) == "org/m --max-model-len 4096 --enforce-eager ?--enable-lora ?EXTRA"
    assert [(request.count, hint.values) for request, hint in zip(unit.gpu_requests, unit.node_hints, strict=True)] == [
        (2, ("H100",))
    ]


def test_ray_serve_llm() -> None:
    unit = one(
        """\
        from ray.serve.llm import LLMConfig, build_openai_app
        config = LLMConfig(
            model_loading_config=dict(model_id="small", model_source="org/m"),
            deployment_config=dict(autoscaling_config=dict(min_replicas=2, max_replicas=4)),
            accelerator_type="A10G",
            engine_kwargs=dict(tensor_parallel_size=2, max_model_len=8192),
        )
        """
    )
    assert words(unit) == "--model org/m --served-model-name small --tensor-parallel-size 2 --max-model-len 8192"
    assert (unit.replicas, [request.count for request in unit.gpu_requests]) == (2, [2])
    assert unit.node_hints[0].values == ("A10G",)


def test_what_documents_or_only_calls_a_server_is_none() -> None:
    assert (
        units('"""Run `vllm serve org/m` first."""\nfrom openai import OpenAI\nOpenAI(base_url="http://vllm:8000")\n')
        == []
    )


def test_positions_behind_characters_of_several_bytes() -> None:
    unit = one("# é\nfrom vllm import LLM\nx = 'ü'; llm = LLM(model='org/m')\n")
    assert (unit.span.line, unit.span.column, unit.words[1].span.text) == (3, 16, "org/m")


def test_a_command_line_that_a_call_takes_by_keyword() -> None:
    unit = one(
        """\
        from rental import Machine, Request
        MODEL = "org/m"
        machine = Machine(gpu=1)
        machine.session(Request(command=(f"vllm serve {MODEL} --port 8000 " "--enable-prefix-caching"), wait=False))
        log.info("started", cmd=f"vllm serve {MODEL}")
        """
    )
    assert words(unit) == "org/m --port 8000 --enable-prefix-caching"


def test_a_command_line_that_a_function_of_the_file_makes() -> None:
    text = """\
        import subprocess

        def build(model, length=2048):
            cmd = ["vllm", "serve", model, "--max-model-len", str(length)]
            cmd += ["--enforce-eager"]
            return cmd

        class Server:
            def start(self):
                args = build("org/m")
                subprocess.Popen(args)
        """
    assert words(one(text)) == "org/m --max-model-len 2048 --enforce-eager"
    twice = one(text + "\n        class Other:\n            def build(self): return []\n")
    assert words(twice) == "org/m --max-model-len 2048 --enforce-eager"
    assert units("import subprocess\ndef vllm(): return vllm()\nsubprocess.run(vllm())\n") == []


def test_a_command_line_that_is_run_and_recorded_is_one_server() -> None:
    text = """\
        import subprocess
        cmd = ["vllm", "serve", "org/m"]
        subprocess.Popen(cmd)
        record(name="x", cmd=" ".join(cmd))
        """
    assert words(one(text)) == "org/m"


def test_a_choice_by_what_is_known() -> None:
    unit = one(
        """\
        import os, subprocess
        FAST = True
        cmd = ["vllm", "serve", "org/m"]
        cmd += ["--enforce-eager" if FAST else "--no-enforce-eager"]
        cmd += ["--port", "80"] if os.environ.get("SMALL", "") else ["--port", "81"]
        cmd += ["--dtype", "half" if os.environ["HALF"] else "auto"]
        subprocess.Popen(cmd)
        """
    )
    assert words(unit) == 'org/m --enforce-eager --port 81 --dtype ?"half" if os.environ["HALF"] else "auto"'
    assert units("import subprocess\nx = x if x else x\nsubprocess.run(['vllm', 'serve', x])\n")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("FAST", "--enforce-eager"),
        ("not FAST", ""),
        ("FAST and LENGTH > 4", "--enforce-eager"),
        ("LENGTH in (4, 8) or unknown()", "--enforce-eager"),
        ("NOTHING is not None", ""),
        ("NOTHING is None", "--enforce-eager"),
        ("os.getenv('X', '0') == '1'", ""),
        ("os.getenv('X')", "?--enforce-eager"),
        ("args.eager", ""),
        ("FAST and unknown()", "?--enforce-eager"),
        ("LENGTH < 'a'", "?--enforce-eager"),
    ],
)
def test_what_is_added_under_a_condition(test: str, expected: str) -> None:
    unit = one(
        f"""\
        import argparse, os, subprocess
        FAST, LENGTH, NOTHING = True, 8, None
        parser = argparse.ArgumentParser()
        parser.add_argument("--eager", action="store_true")
        args = parser.parse_args()
        cmd = ["vllm", "serve", "org/m"]
        if {test}:
            cmd.append("--enforce-eager")
        subprocess.Popen(cmd)
        """
    )
    assert words(unit) == f"org/m {expected}".strip()


def test_a_condition_on_the_name_that_it_assigns_decides_nothing() -> None:
    unit = one(
        """\
        from vllm import LLM
        def main(model=None):
            if model is None:
                model = "org/m"
            LLM(model=model)
        """
    )
    assert words(unit) == "--model org/m"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("cfg = Settings()", "org/m 4 8 bfloat16"),
        ("cfg = Settings(model='org/n', length=16)", "org/n 4 16 bfloat16"),
        ("cfg = Settings('org/n')", "org/n 4 8 bfloat16"),
        ("cfg = Small()", "org/s 4 8 bfloat16"),
        ("cfg = use_arguments(Settings)", "org/m 4 8 bfloat16"),
        ("cfg = Settings(**told)", "?cfg.model ?cfg.size ?cfg.length ?cfg.dtype"),
        ("cfg = Settings.load('file')", "?cfg.model ?cfg.size ?cfg.length ?cfg.dtype"),
        ("cfg = Settings", "org/m 4 8 bfloat16"),
    ],
)
def test_fields_of_a_class_of_settings(code: str, expected: str) -> None:
    unit = one(
        f"""\
        import subprocess
        from dataclasses import dataclass, field
        from pydantic import Field

        class Settings(Base):
            model: str = "org/m"
            size: int = Field(default=4, ge=1)
            length: int = field(default_factory=lambda: 8)
            dtype: str = Field("bfloat16")
            needed: int = Field(...)

        class Small(Settings):
            model = "org/s"

        {code}
        line = ["vllm", "serve", cfg.model, str(cfg.size), str(cfg.length), cfg.dtype]
        subprocess.run(line)
        """
    )
    assert words(unit) == expected


def test_a_server_class_and_what_it_is_made_with() -> None:
    text = """\
        import subprocess

        class Server:
            port = 8000

            def __init__(self, model, length=2048):
                self.model = model
                self.length = length
                self.line = ["vllm", "serve", self.model]

            def start(self):
                subprocess.Popen([*self.line, "--port", str(self.port), "--max-model-len", str(self.length)])

        Server("org/m").start()
        """
    assert words(one(text)) == "org/m --port 8000 --max-model-len 2048"
    both = units(dedent(text) + 'Server("org/n", length=8).start()\n')
    assert [words(unit) for unit in both] == [
        "org/m --port 8000 --max-model-len 2048",
        "org/n --port 8000 --max-model-len 8",
    ]


def test_lines_that_are_words_of_lists_and_flags_that_are_switched_off() -> None:
    unit = one("from vllm import LLM\nLLM(model='m', served_model_name=['a', 'b'], disable_log_stats=False)\n")
    assert words(unit) == "--model m --served-model-name a b --no-disable-log-stats"


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("run_server(parser.parse_args(['--model', 'org/m', '--port', '80']))", "python", "--model org/m --port 80"),
        ("args = parser.parse_args([])\nargs.model = 'org/m'\nargs.max_model_len = 8\nuvloop.run(run_server(args))",
         "python", "--model org/m --max-model-len 8"),
        ("sys.argv = ['x', '--model', 'org/m']\nserve_main()", "python", "--model org/m"),
        ("sys.argv = ['x', '--model', 'org/m']\nrun_server(parser.parse_args())", "python", "--model org/m"),
        ("args = parser.parse_args()\nrun_server(args)", "python", "?args"),
        ("AsyncEngineArgs.from_cli_args(parser.parse_args())", "python", "?parser.parse_args()"),
        ("EngineArgs.from_cli_args(args)", "offline-engine", "?args"),
        ("sys.argv = ['vllm', 'serve', 'org/m', '--port', '80']\nprogram()", "python", "org/m --port 80"),
    ],
)  # fmt: skip
def test_servers_of_vllm_by_its_own_parser(code: str, kind: str, expected: str) -> None:
    unit = one(
        "import sys\nfrom vllm.entrypoints.openai.api_server import main as serve_main, run_server\n"
        "from vllm.entrypoints.cli.main import main as program\n"
        f"from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs\nparser = make_arg_parser()\n{code}\n"
    )
    assert (unit.kind, words(unit)) == (kind, expected)
    assert not units("from other import main, run_server\nrun_server(['vllm'])\nmain()\n")
    assert not units("from vllm.entrypoints.cli.main import main\nmain()\n")


def test_what_is_set_on_engine_arguments_behind_their_making() -> None:
    unit = one(
        """\
        from vllm import AsyncEngineArgs
        def load(folder, dtype):
            args = AsyncEngineArgs(folder)
            args.max_model_len = 8
            if unknown():
                args.seed = 1
            args.dtype = dtype
        load("org/m", "half")
        """
    )
    assert words(unit) == "--model org/m --max-model-len 8 ?--seed ?1 --dtype half"


def test_a_command_line_that_a_method_of_another_object_makes() -> None:
    text = """\
        import subprocess

        class Settings:
            port: int = 8000

            def line(self):
                return ["vllm", "serve", "org/m", "--port", str(self.port)]

        class Server:
            def __init__(self, settings: Settings):
                self.settings = settings

            def start(self):
                subprocess.Popen(self.settings.line())
        """
    assert words(one(text)) == "org/m --port 8000"
    other = dedent(text).replace("self.settings.line()", "other.line()")
    assert one("import other\n" + other).span.line == 8  # what the method makes, whoever runs it


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('NAME.split("/")[-1]', "m"),
        ('NAME.split("/")[9]', '?NAME.split("/")[9]'),
        ("NAME.upper().lower().removeprefix('org')", "/m"),
        ("TABLE[KEY]", "org/x"),
        ("TABLE[unknown]", "?TABLE[unknown]"),
        ("NAME.replace('', 'x' * 200)", "?NAME.replace('', 'x' * 200)"),
        ("NAME.split(1)", "?NAME.split(1)"),
        ("str(8192 / 4)", "2048"),
        ("str(1 / 4)", "0.25"),
    ],
)
def test_texts_that_are_cut_and_looked_up(value: str, expected: str) -> None:
    unit = one(
        f"""\
        import subprocess
        NAME, KEY = "org/m", "x"
        TABLE = {{"x": "org/x", "y": "org/y"}}
        subprocess.run(["vllm", "serve", {value}])
        """
    )
    assert words(unit) == expected


def test_words_that_are_spread_over_a_call() -> None:
    unit = one(
        """\
        import asyncio
        async def spawn(program="vllm", more=None):
            head = [program] + (["serve"] if program == "vllm" else [])
            await asyncio.create_subprocess_exec(*head, "org/m", *["--port", "80"], *more, env=None)
        """
    )
    assert words(unit) == "org/m --port 80 ?more"


def test_a_command_line_word_by_word_is_a_server_whoever_runs_it() -> None:
    found = units(
        """\
        import multiprocessing, shutil
        MODEL = "org/m"
        ARGS = ["vllm", "serve", MODEL, "--port", "80"]
        run_command(["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/n"], "a.log")
        if shutil.which("uv"):
            line = ["uv", "run", "vllm", "serve", "org/o"]
        else:
            line = ["vllm", "serve", "org/o"]
        multiprocessing.Process(target=run, args=(line,)).start()
        entry = "vllm.entrypoints." + ("grpc_server" if grpc else "api_server")
        NAMES = ["vllm", "serve"]
        run_command(["pkill", "-f", "vllm serve org/p"])
        if words == ["vllm", "serve", "org/q"]:
            pass
        """
    )
    assert [words(unit) for unit in found] == ["org/m --port 80", "--model org/n", "org/o"]
    assert [unit.span.line for unit in found] == [3, 4, 6]


@pytest.mark.parametrize(
    ("imported", "value", "expected"),
    [
        ("from config import MODEL", "MODEL", "org/m"),
        ("from config import MODEL as NAME", "NAME", "org/m"),
        ("import config", "config.MODEL", "org/m"),
        ("from app import config", "config.MODEL", "org/m"),
        ("from app.config import settings", "settings.name", "org/s"),
        ("from .config import Settings", "Settings().name", "org/s"),
        ("from . import config as c", "c.settings.name", "org/s"),
        ("from ..other import MODEL", "MODEL", "org/o"),
        ("from config import MODELS", "MODELS['a']", "org/a"),
        ("from config import FULL", "FULL", "org/m:x"),
        ("from config import NOTHING", "NOTHING", "?NOTHING"),
        ("from missing import MODEL", "MODEL", "?MODEL"),
        ("from circle import MODEL", "MODEL", "?MODEL"),
        ("from json import MODEL", "MODEL", "?MODEL"),
    ],
)
def test_names_of_other_files(imported: str, value: str, expected: str) -> None:
    files = {
        "src/app/serve.py": f"import subprocess\n{imported}\nsubprocess.Popen(['vllm', 'serve', {value}])\n",
        "src/app/config.py": (
            "import os\nfrom base import TAG\nMODEL = os.getenv('M', 'org/m')\nMODELS = {'a': 'org/a'}\n"
            "FULL = f'{MODEL}:{TAG}'\nclass Settings:\n    name: str = 'org/s'\nsettings = Settings()\n"
        ),
        "src/base.py": "TAG = 'x'\n",
        "src/other.py": "MODEL = 'org/o'\n",
        "src/app/circle.py": "from app.serve import MODEL\n",
        "json.py": "MODEL = 'org/wrong'\n",
    }
    (unit,) = read_tree([SourceFile(path, text) for path, text in files.items()]).units
    assert (unit.path, words(unit)) == ("src/app/serve.py", expected)


@pytest.mark.parametrize("path", ["/a/b/serve.py", "serve.py", "../serve.py", "/serve.py"])
def test_a_file_outside_the_tree_is_read(path: str) -> None:
    (unit,) = units("from vllm import LLM\nfrom config import MODEL\nLLM(MODEL)\n", path)
    assert words(unit) == "--model ?MODEL"


def test_lists_and_tables_of_other_files() -> None:
    files = {
        "serve.py": (
            "import subprocess\nfrom vllm import LLM\nimport config\n"
            "subprocess.Popen(['vllm', 'serve', 'org/m', *config.ARGS])\nLLM(**config.ENGINE)\n"
        ),
        "config.py": "ARGS = ['--port', 80]\nENGINE = {'model': 'org/m', 'enforce_eager': True}\n",
    }
    found = read_tree([SourceFile(path, text) for path, text in files.items()]).units
    assert [words(unit) for unit in found] == ["org/m --port 80", "--model org/m --enforce-eager"]


def test_a_program_that_is_waited_for_is_no_server() -> None:
    text = """\
        import subprocess
        subprocess.run(["vllm", "serve", "--help=all"], capture_output=True)
        for ask in ("--help=all", "--help"):
            subprocess.run(["vllm", "serve", ask], capture_output=True, timeout=60)
        subprocess.run("docker run -d vllm/vllm-openai --model org/m", shell=True, timeout=60)
        """
    assert words(one(text)) == "--model org/m"


def test_a_command_line_that_another_file_asks_for() -> None:
    text = """\
        from .settings import Model

        def line(model: Model, *, port: int = 8000) -> list[str]:
            if model.kind == "none":
                return []
            words = ["vllm", "serve", model.name, "--port", str(port)]
            words.append("--enforce-eager")
            return words

        def shown(model):
            return "vllm serve " + model
        """
    assert words(one(text)) == "?model.name --port 8000 --enforce-eager"
    assert units("import pytest\n" + dedent(text)) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(m=None):\n    if not m:\n        m = 'org/d'\n    LLM(m)\nf('org/m')", "org/m"),
        ("def f(m=None):\n    if m is None:\n        m = 'org/d'\n    LLM(m)", "org/d"),
        ("m = os.getenv('M')\nif not m:\n    m = 'org/d'\nLLM(m)", "org/d"),
        ("m = os.getenv('M', 'org/m')\nif not m:\n    m = 'org/d'\nLLM(m)", "org/m"),
        ("m = unknown()\nif not m:\n    m = 'org/d'\nLLM(m)", "?m"),
        ("m = 'org/m'\nif unknown():\n    m = 'org/d'\nLLM(m)", "?m"),
    ],
)
def test_a_default_for_what_has_no_value(code: str, expected: str) -> None:
    assert words(one(f"import os\nfrom vllm import LLM\n{code}\n")) == f"--model {expected}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("os.path.abspath(os.path.expanduser('~/m'))", "~/m"),
        ("os.path.join(ROOT, 'm')", "/models/m"),
        ("str(Path(ROOT) / 'm')", "/models/m"),
        ("str(Path('~/m').expanduser().resolve())", "~/m"),
        ("os.path.join(unknown, 'm')", "?unknown/m"),
        ("str(Path(__file__).parent / 'm')", "?Path(__file__).parent/m"),
    ],
)
def test_paths(value: str, expected: str) -> None:
    text = f"import os\nfrom pathlib import Path\nfrom vllm import LLM\nROOT = '/models'\nLLM(model={value})\n"
    assert words(one(text)) == f"--model {expected}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("LLM(**(BASE | {'seed': 2}))", "--model org/m --seed 1 --seed 2"),
        ("LLM(**{**BASE, **MORE})", "--model org/m --seed 1 --max-model-len 8"),
        ("LLM(**dict(BASE, seed=3, **MORE))", "--model org/m --seed 1 --seed 3 --max-model-len 8"),
        ("LLM(**BASE.copy())", "--model org/m --seed 1"),
        ("LLM(**copy.deepcopy(BASE))", "--model org/m --seed 1"),
        ("LLM(**engine())", "--model org/f --max-model-len 8"),
        ("LLM(**{k: v for k, v in dict(BASE, revision=None).items() if v is not None})", "--model org/m --seed 1"),
        ("LLM(**{k: v for k, v in MORE.items() if k in wanted})", "?--max-model-len ?8"),
        ("LLM(**{k: str(v) for k, v in MORE.items()})", "?{k: str(v) for k, v in MORE.items()}"),
        ("LLM(BASE.get('model'), seed=BASE.get('none', 5), enforce_eager=BASE['seed'] > 0)",
         "--model org/m --seed 5 --enforce-eager"),
        ("LLM(BASE['model'], enforce_eager=os.environ.get('EAGER', 'true').lower() in ('1', 'true'))",
         "--model org/m --enforce-eager"),
        ("LLM(BASE['model'], download_dir=volume.path)", "--model org/m --download-dir /v"),
        ("LLM(unknown.get('model', 'org/d'))", "--model ?unknown.get('model', 'org/d')"),
        # what is not known takes no more away than what it may replace
        ("LLM(**{**BASE, **unknown})", "--model org/m --seed 1 ?unknown"),
        ("LLM(**(unknown | BASE))", "?unknown --model org/m --seed 1"),
        ("LLM(**dict(unknown, **MORE))", "?unknown --max-model-len 8"),
        ("LLM(**dict(unknown))", "?unknown"),
        ("LLM({**unknown, 'model': 'org/n'}['model'])", "--model org/n"),
        ("LLM({'model': 'org/n', **unknown}['model'])", "--model ?{'model': 'org/n', **unknown}['model']"),
    ],
)  # fmt: skip
def test_mappings_that_are_made_of_others(value: str, expected: str) -> None:
    found = units(
        "import copy, os\nfrom vllm import LLM\nBASE = {'model': 'org/m', 'seed': 1}\nMORE = {'max_model_len': 8}\n"
        "volume = Volume(name='v', path='/v')\n"
        f"def engine():\n    return {{'model': 'org/f', **MORE}}\nx = {value}\n"
    )
    assert [words(unit) for unit in found] == [expected]


def test_what_is_not_known_in_a_mapping_that_becomes_a_command_line() -> None:
    unit = one(
        """\
        from vllm import AsyncEngineArgs
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        def parse(options):
            words = []
            for key, value in options.items():
                words.extend([f"--{key}", str(value)])
            return make_arg_parser().parse_args(args=words)
        def build(options):
            options["model"] = "org/m"
            parsed = parse(options)
            engine = AsyncEngineArgs.from_cli_args(parsed)
            engine.seed = 1
        """
    )
    assert words(unit) == "?--{options} ?options --model org/m --seed 1"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def load():\n    import vllm\n    return vllm.LLM, vllm.SamplingParams\nLLM, Params = load()\nLLM('org/m')\n",
         "--model org/m"),
        ("import importlib\ndef load():\n    v = importlib.import_module('vllm')\n    return v.LLM\n"
         "LLM = load()\nLLM('org/m')\n", "--model org/m"),
        ("import importlib\nLLM = importlib.import_module('langchain').LLM\nLLM('org/m')\n", None),
        ("LLM = make()\nLLM('org/m')\n", None),
    ],
)  # fmt: skip
def test_a_class_that_is_not_imported_by_its_name(code: str, expected: str | None) -> None:
    assert [words(unit) for unit in units("# vllm\n" + code)] == ([] if expected is None else [expected])


def test_several_values_of_one_call() -> None:
    unit = one(
        """\
        from vllm import LLM
        def names():
            return "org/m", 8
        def more():
            return [1, *names()]
        model, length = names()
        one, two = more()
        first, *rest = names()
        LLM(model, max_model_len=length, seed=two, dtype=first)
        """
    )
    assert words(unit) == "--model org/m --max-model-len 8 --seed ?two --dtype ?first"


def test_arguments_that_are_looked_at_beside_the_engine_are_no_second_one() -> None:
    code = "from vllm import LLM, EngineArgs\nLLM(**options)\nEngineArgs(**options).create_model_config()\n"
    assert [unit.span.line for unit in units(code)] == [2]
    assert len(units(code + "EngineArgs(**others)\n")) == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # what a name is given is made of what it was before
        ("cmd = ['vllm', 'serve', 'org/m']\ncmd = cmd + ['--seed', '1']\ncmd = ['env'] + cmd\nPopen(cmd)\n",
         "org/m --seed 1"),
        ("def run(model=None):\n    model = model or 'org/m'\n    Popen(['vllm', 'serve', model])\nrun()\n", "org/m"),
        # a condition under which an object of another place gets a value
        ("if quantized:\n    args.kind = 'half'\nPopen(['vllm', 'serve', 'org/m', '--dtype', args.kind])\n",
         "org/m --dtype ?args.kind"),
        ("args.kind = 'half'\nPopen(['vllm', 'serve', 'org/m', '--dtype', args.kind])\n", "org/m --dtype half"),
    ],
)  # fmt: skip
def test_what_a_name_was_before(code: str, expected: str) -> None:
    assert words(one("from subprocess import Popen\n" + code)) == expected


def test_what_is_parsed_already() -> None:
    unit = one(
        """\
        from vllm.entrypoints.openai.api_server import run_server
        args = parser.parse_args(args=["--seed", "1"], namespace=config.parsed())
        run_server(args)
        """
    )
    assert words(unit) == "?config.parsed() --seed 1"


def test_what_a_function_runs_for_its_callers() -> None:
    found = units(
        """\
        import os, subprocess, sys
        def sh(command, shell=True):
            subprocess.check_call(command, shell=shell)
        class Remote:
            def do(self, line):
                os.system(line)
        sh("nvidia-smi")
        sh(f"pm2 start {sys.executable} --name v -- -m vllm.entrypoints.openai.api_server --model org/a --port {port}")
        sh(["vllm", "serve", "org/b"])
        Remote().do("echo vllm serve org/c")
        Remote().do("nohup vllm serve org/d &")
        """
    )
    assert [(unit.span.line, words(unit)) for unit in found] == [
        (8, "--model org/a --port ?{port}"), (9, "org/b"), (11, "org/d"),
    ]  # fmt: skip


def test_a_function_that_is_called_several_times() -> None:
    found = units(
        """\
        from vllm import AsyncEngineArgs
        def build(model, length, seed):
            return AsyncEngineArgs(model, max_model_len=length, seed=seed)
        NAME = "org/m"
        a = build(NAME, 4, 1)
        b = build(NAME, length=4, seed=2)
        """
    )
    line = "--model org/m --max-model-len 4 --seed"
    assert [words(unit) for unit in found] == [f"{line} 1", f"{line} 2"]


def test_fields_that_begin_empty() -> None:
    unit = one(
        """\
        from dataclasses import dataclass, field
        import json, subprocess
        @dataclass
        class Options:
            flags: list = field(default_factory=list)
            transfer: dict = field(default_factory=dict)
            def command(self):
                line = ["vllm", "serve", "org/m", *self.flags]
                if self.transfer:
                    line += ["--kv-transfer-config", json.dumps(self.transfer)]
                return line
        subprocess.run(Options().command())
        """
    )
    assert words(unit) == "org/m"


@pytest.mark.parametrize(
    ("program", "flags", "expected"),
    [
        ("self.vllm_path", "'--port', '1'", "org/m --port 1"),
        ("shutil.which('vllm') or 'vllm'", "", "org/m"),
        ("str(self.venv / 'bin' / 'vllm')", "", "org/m"),
        ("os.path.join(folder, 'vllm')", "", "org/m"),
        ("str(Path(sys.executable).with_name('vllm'))", "", "org/m"),
        ("settings.binary", "'--max-model-len', '8', '--enforce-eager'", "org/m --max-model-len 8 --enforce-eager"),
        ("settings.binary", "'--port', '1'", None),
        ("self.vllm_router", "'--port', '1'", None),
        ("self.vllm_mlx", "'--max-num-seqs', '1', '--enable-auto-tool-choice'", None),
    ],
)
def test_a_program_whose_path_is_not_known(program: str, flags: str, expected: str | None) -> None:
    found = units(
        f"# vllm serve\nimport subprocess, shutil\nsubprocess.Popen([{program}, 'serve', 'org/m', {flags}])\n"
    )
    assert [words(unit) for unit in found] == ([expected] if expected is not None else [])


def test_flags_that_a_helper_appends_to_the_list_of_its_caller() -> None:
    unit = one(
        """\
        import subprocess
        class Server:
            def start(self, config):
                command = ["vllm", "serve", "org/m"]
                self._add_flags(command, config)
                if config.eager:
                    add_seed(command)
                command.append("--enable-lora")
                subprocess.Popen(command)

            def _add_flags(self, out, config):
                out += ["--port", "8001"]
                if config.length:
                    out.extend(["--max-model-len", "4096"])

        def add_seed(argv):
            argv.append("--seed=1")
        """
    )
    assert words(unit) == "org/m --port 8001 ?--max-model-len ?4096 ?--seed=1 --enable-lora"
    assert [word.unresolved[0].reason for word in unit.words if word.unresolved] == [
        "only if config.length", "only if config.length", "only if config.eager",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for k, v in OPTIONS.items():\n    cmd += [f'--{k.replace(\"_\", \"-\")}', str(v)]\n",
         "--max-model-len 8 --enforce-eager True --quantization ?None"),
        ("for k, v in OPTIONS.items():\n    flag = '--' + k\n    if v is None:\n        continue\n"
         "    if isinstance(v, bool):\n        cmd.append(flag)\n    else:\n        cmd.extend([flag, str(v)])\n",
         "--max_model_len 8 --enforce_eager"),
        ("for flag in ['--enable-lora', '--enforce-eager']:\n    cmd.append(flag)\n", "--enable-lora --enforce-eager"),
        ("for k, v in (('seed', SEED), ('port', 1)):\n    if v:\n        cmd += ['--' + k, str(v)]\n",
         "?--seed ?SEED --port 1"),
        ("for k, v in unknown.items():\n    cmd += [f'--{k}', str(v)]\n", "?--{k} ?v"),
        ("cmd += [x for k, v in OPTIONS.items() if v is not None for x in ('--' + k, str(v))]\n",
         "--max_model_len 8 --enforce_eager True"),
        ("cmd += [y for pair in {'--seed': '1'}.items() for y in pair]\n", "--seed 1"),
        ("k = 'port'\nfor k in ['--enable-lora']:\n    cmd.append(k)\ncmd.append(unknown[k])\n",
         "--enable-lora ?unknown[k]"),
    ],
)  # fmt: skip
def test_a_mapping_that_becomes_flags(code: str, expected: str) -> None:
    unit = one(
        "import subprocess\nOPTIONS = {'max_model_len': 8, 'enforce_eager': True, 'quantization': None}\n"
        f"cmd = ['vllm', 'serve', 'org/m']\n{code}subprocess.Popen(cmd)\n"
    )
    assert words(unit) == f"org/m {expected}"


def test_flags_of_a_loop_stand_where_the_mapping_has_them() -> None:
    unit = one(
        """\
        import subprocess
        options = {
            "max-model-len": 8,
        }
        cmd = ["vllm", "serve", "org/m"]
        for key, value in options.items():
            cmd += [f"--{key}", str(value)]
        subprocess.run(cmd)
        """
    )
    assert (unit.words[2].value, unit.words[2].text.span.line) == ("8", 3)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("' '.join(['vllm serve', 'org/m', '--port 8', f'--seed {SEED}'])", "org/m --port 8 --seed 1"),
        ("' '.join(['vllm', 'serve', 'org/m', f\"--hf-overrides '{json.dumps({'a': 1})}'\"])",
         'org/m --hf-overrides {"a": 1}'),
        ("f\"vllm serve org/m {' '.join(['--seed', str(SEED)])}\"", "org/m --seed 1"),
        ("'vllm serve org/m ' + ' '.join(f'--{k} {v}' for k, v in {'seed': SEED, 'port': 2}.items())",
         "org/m --seed 1 --port 2"),
    ],
)  # fmt: skip
def test_texts_that_are_joined_to_a_command_line(line: str, expected: str) -> None:
    unit = one(f"import json, subprocess\nSEED = 1\nsubprocess.Popen({line}, shell=True)\n")
    assert words(unit) == expected


@pytest.mark.parametrize(
    ("test", "runs"),
    [("False", False), ("0", False), ("True", True), ("__name__ == '__main__'", True), ("args.serve", True)],
)
def test_what_stands_under_a_condition_that_never_holds_is_no_server(test: str, runs: bool) -> None:
    code = f"import subprocess\nif {test}:\n    subprocess.run(['vllm', 'serve', 'org/m'])\n"
    code += "    LINE = ['vllm', 'serve', 'org/n']\n"
    assert len(units(code)) == (2 if runs else 0)


def test_what_a_function_returns_and_what_a_model_is_downloaded_by() -> None:
    unit = one(
        """\
        import bentoml
        def size(default=2):
            return str(default)

        class Service:
            weights = bentoml.models.HuggingFaceModel("Org/M".lower(), exclude=["*.pth"])

            def __command__(self):
                return ["vllm", "serve", self.weights, "--tensor-parallel-size", size()]
        """
    )
    assert words(unit) == "org/m --tensor-parallel-size 2"


def test_an_actor_and_an_option_that_is_set_by_default() -> None:
    unit = one(
        """\
        import argparse, ray, subprocess
        parser = argparse.ArgumentParser()
        parser.add_argument("--trust-remote-code", action="store_true", default=True)
        args = parser.parse_args()

        @ray.remote(num_gpus=2)
        class Actor:
            def __init__(self, model, port=80):
                self.model, self.port = model, port

            def start(self):
                line = ["vllm", "serve", self.model, "--port", str(self.port)]
                if args.trust_remote_code:
                    line.append("--trust-remote-code")
                subprocess.Popen(line)

        Actor.options(name="a").remote("org/m")
        """
    )
    assert words(unit) == "org/m --port 80 --trust-remote-code"
    assert unit.gpu_requests[0].count == 2


def test_a_command_line_that_a_framework_asks_for() -> None:
    unit = one(
        """\
        import bentoml

        class Options:
            model: str = "org/m"
            gpus: int = 2

            @property
            def more(self):
                words = ["-tp", str(self.gpus)]
                words.extend(["--max-model-len", "8"])
                return words

        options = bentoml.use_arguments(Options)

        @bentoml.service(resources={"gpu": options.gpus, "gpu_type": "nvidia-l4"})
        class LLM:
            def __command__(self):
                return ["vllm", "serve", options.model, *options.more]
        """
    )
    assert words(unit) == "org/m -tp 2 --max-model-len 8"
    assert [request.count for request in unit.gpu_requests] == [2]


def test_arguments_that_are_handed_to_what_knows_the_machine() -> None:
    first, second = units(
        """\
        from beam.integrations import VLLM, VLLMArgs
        one = VLLM(gpu="A10G", gpu_count=2, vllm_args=VLLMArgs(model="org/m", max_model_len=8))
        two = VLLM(gpu="A100-40", vllm_args=VLLMArgs(model="org/n"))
        """
    )
    assert [(words(unit), unit.gpu_requests[0].count) for unit in (first, second)] == [
        ("--model org/m --max-model-len 8", 2),
        ("--model org/n", 1),
    ]
    assert first.node_hints[0].values == ("A10G",)


@pytest.mark.parametrize(
    "code",
    [
        "import pytest\nplan = Plan(command='vllm serve org/m')\n",
        "def test_plan():\n    Plan(cmd=['vllm', 'serve', 'org/m'])\n",
        "import subprocess\nassert Plan(command='vllm serve org/m') == other\n",
        "from unittest import mock\nrun.assert_has_calls([mock.call(['vllm', 'serve', 'org/m'])])\n",
        "import subprocess\nfrom unittest.mock import call\nassert seen == [call(['vllm', 'serve', 'org/m'])]\n",
    ],
)
def test_what_a_test_makes_up_is_no_server(code: str) -> None:
    assert units(code) == []


@pytest.mark.parametrize(
    "path", ["tests/fixtures.py", "a/test/b.py", "test_serve.py", "a/serve_test.py", "conftest.py"]
)
def test_files_of_tests_make_up_command_lines(path: str) -> None:
    text = "import subprocess\nLINE = ['vllm', 'serve', 'org/m']\nPlan(command='vllm serve org/m')\n"
    assert units(text, path) == []
    assert len(units(text, "tests_of_mine.py")) == 2


def test_a_test_that_runs_a_server_has_one() -> None:
    text = (
        "import pytest, subprocess\n@pytest.fixture\ndef server():\n    subprocess.Popen(['vllm', 'serve', 'org/m'])\n"
    )
    assert words(one(text)) == "org/m"


CARRIED = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: program
data:
  notes.txt: |
    vllm serve org/none
  serve.py: |
    from vllm.engine.arg_utils import AsyncEngineArgs

    def build():
        return AsyncEngineArgs(model="org/m", max_model_len=2048)
"""


def test_a_program_that_a_config_map_carries() -> None:
    (unit,) = units(CARRIED, "program.yaml")
    assert (unit.kind, words(unit)) == ("python", "--model org/m --max-model-len 2048")
    assert (unit.span.line, unit.span.column, unit.words[1].span.text) == (12, 16, "org/m")
    assert units(CARRIED.replace("serve.py: |", "serve.txt: |"), "program.yaml") == []


def test_a_program_that_a_ray_service_of_another_file_serves_is_found_there() -> None:
    service = "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: '', volumes: [program]}\n"
    assert not read_tree([SourceFile("program.yaml", CARRIED), SourceFile("ray.yaml", service)]).units


@pytest.mark.parametrize(
    "text",
    [
        "from vllm import LLM\nLLM(",
        "from vllm import LLM\nx = x\nLLM(model=x)\n",
        "from vllm import LLM\na = a.b\nLLM(a.b.c)\n",
        "from vllm import LLM\na = b.x\nb = a.y\nLLM(a.x)\n",
        "from vllm import LLM\nclass A(B): pass\nclass B(A): pass\nLLM(A().x)\n",
        "from vllm import LLM\nif m:\n    m = n\nif n:\n    n = m\nLLM(m)\n",
        "from vllm import LLM\n" + "".join(f"x{n} = x{n - 1} + x{n - 1}\n" for n in range(1, 60)) + "LLM(x59)\n",
        "from vllm import LLM\n"
        + "".join(f"if x{n - 1} or x{n - 1}:\n    x{n} = 1\n" for n in range(1, 60))
        + "LLM(x59)\n",
        "from vllm import LLM\nclass A:\n    def f(self):\n        LLM(self.x.y)\nf()\n",
        "from vllm import LLM\na = b\nb = a\nLLM(model=a, **a)\n",
        "from vllm import LLM\nLLM(model=" + "(" * 150 + "1" + ")" * 150 + ")\n",
        "from vllm import LLM\nLLM(model=" + "-" * 3000 + "1)\n",
        "from vllm import LLM\nx = 9**9**9**9\nLLM(seed=x)\n",
        "from vllm import LLM\nx = 'a' * 10**12\nLLM(model=x)\n",
        "from vllm import LLM\n" + "x = [0]\n" * 70_000,
        "import subprocess\nX = ["
        + "1, " * 90
        + "]\nsubprocess.run(['vllm', 'serve', 'm', *[a"
        + "".join(f" for a{n} in X" for n in range(9))
        + "]])\n",
        "import subprocess\nX = ["
        + "1, " * 90
        + "]\nc = ['vllm', 'serve', 'm']\nfor a in X:\n    c += [b for b in X for d in X]\n"
        "subprocess.run(c)\n",
        "import subprocess\nc = ['vllm', 'serve', 'm']\ndef f(c):\n    c += ['--a']\n    f(c)\n    g(c)\n"
        "def g(c):\n    f(c)\n"
        "f(c)\nsubprocess.run(c)\n",
        "from vllm import LLM\nd = {}\n" + "d['a'] = d['b']\n" * 4_000 + "LLM(d['a'], **d)\n",
        "import subprocess\ndef sh(c):\n" + "    subprocess.run(c)\n" * 2_000 + "sh('vllm serve m')\n" * 2_000,
        "from vllm import LLM\nclass A:\n" + "".join(f"    x{n}: int = 1\n" for n in range(3_000)) + "a = A()\n"
        "b = asdict(a)\n" + "LLM(b['x1'], **asdict(a))\n" * 3_000,
        "import vllm\0\n",
        "import vllm\rvllm.LLM('a')\r",
    ],
)
def test_hostile_code_costs_little(text: str) -> None:
    start = time.process_time()
    units(text)
    assert time.process_time() - start < 5


@given(st.text(alphabet="LM(model='x', **k)\n =[]{}fé\"+", max_size=80))
def test_no_text_makes_it_raise(tail: str) -> None:
    units("from vllm import LLM\nimport subprocess\n" + tail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("M = 'org/a'\nM = 'org/m'\nPopen(['vllm', 'serve', M])\nM = 'org/b'\n", "org/m"),
        ("M = 'org/a'\nM = 'org/m'\ndef f():\n    Popen(['vllm', 'serve', M])\n", "org/m"),
        ("M = 'org/m'\nif x:\n    M = 'org/a'\nPopen(['vllm', 'serve', M])\n", "?M"),
        ("if x:\n    M = 'org/a'\nM = 'org/m'\nPopen(['vllm', 'serve', M])\n", "org/m"),
        ("M = 'org/a'\nfor i in y:\n    Popen(['vllm', 'serve', M])\n    M = i\n", "?M"),
        (
            "A = ['--port', '1']\nA = ['--port', '2']\nA += ['--x']\nPopen(['vllm', 'serve', 'm', *A])\n",
            "m --port 2 --x",
        ),
    ],
)
def test_the_last_assignment_before_a_use_counts(text: str, expected: str) -> None:
    (found,) = read_tree([SourceFile("serve.py", "from subprocess import Popen\n" + text)]).units
    assert " ".join(("?" if word.unresolved else "") + word.value for word in found.words) == expected


def test_the_variables_that_a_model_of_ray_serve_runs_with() -> None:
    unit = one(
        """\
        from ray.serve.llm import LLMConfig, build_openai_app
        mode = "1"
        config = LLMConfig(
            model_loading_config={"model_id": "a", "model_source": "org/m"},
            runtime_env={"pip": ["x"], "env_vars": {"VLLM_USE_V1": mode, "VLLM_LOGGING_LEVEL": "DEBUG"}},
            engine_kwargs={"max_model_len": 4096},
        )
        build_openai_app({"llm_configs": [config]})
        """
    )
    given = {item.name: item.value and item.value.value for item in unit.environment}
    assert given == {"VLLM_USE_V1": "1", "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert words(unit) == "--model org/m --served-model-name a --max-model-len 4096"
