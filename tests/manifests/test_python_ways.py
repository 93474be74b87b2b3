"""Roundabout ways in which Python starts vLLM: texts filled in, scripts it writes, other processes, rented machines."""

from __future__ import annotations

import time
from textwrap import dedent

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str) -> list[ServeUnit]:
    return list(read_tree([SourceFile("serve.py", dedent(text))], named=frozenset({"serve.py"})).units)


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("'vllm serve {} --port {}'.format('org/m', 1)", "org/m --port 1"),
        ("'vllm serve {model} --port {} --seed {port}'.format(1, model='org/m', port=port)",
         "org/m --port 1 --seed ?port"),
        ("'vllm serve {0} --served-model-name {0}'.format('org/m')", "org/m --served-model-name org/m"),
        ("'vllm serve org/m --hf-overrides \\'{{}}\\''.format()", "org/m --hf-overrides {}"),
        ("'vllm serve {} {}'.format('org/m')", None),
        ("'vllm serve {'.format('org/m')", None),
        ("'vllm serve %s --port %d' % ('org/m', 1)", "org/m --port 1"),
        ("'vllm serve %s' % 'org/m'", "org/m"),
        ("'vllm serve org/m --x 5%% --gpu-memory-utilization %.2f' % 0.5", "org/m --x 5% --gpu-memory-utilization 0.5"),
        ("'vllm serve %s %s' % ('org/m',)", None),
    ],
)  # fmt: skip
def test_texts_that_are_filled_in(line: str, expected: str | None) -> None:
    found = units(f"import subprocess\nsubprocess.Popen({line}, shell=True)\n")
    if expected is None:  # what is wrong in itself is no more than what it says
        assert all(unit.words[0].unresolved for unit in found)
    else:
        assert [words(unit) for unit in found] == [expected]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("multiprocessing.Process(target=os.system, args=('vllm serve org/m --port 1',)).start()", "org/m --port 1"),
        ("threading.Thread(target=subprocess.run, args=(['vllm', 'serve', 'org/m'],), daemon=True)", "org/m"),
        ("pool.submit(subprocess.run, ['vllm', 'serve', 'org/m'])", "org/m"),
        ("asyncio.to_thread(os.system, 'vllm serve org/m')", "org/m"),
        ("loop.run_in_executor(None, os.system, 'vllm serve org/m')", "org/m"),
        ("Process(target=run_server, args=(parse_args(['--model', 'org/m']),))", "--model org/m"),
        ("Process(target=print, args=('vllm serve org/m',))", None),
        ("Process(target=os.system)", None),
        ("pool.submit()", None),
    ],
)
def test_what_another_process_or_thread_runs(call: str, expected: str | None) -> None:
    found = units(f"import os, subprocess\nfrom vllm.entrypoints.openai.api_server import run_server\n{call}\n")
    assert [words(unit) for unit in found] == ([] if expected is None else [expected])


def test_what_is_inserted_into_a_list() -> None:
    found = units(
        """\
        import subprocess
        cmd = ["vllm", "serve", "org/m"]
        cmd.insert(3, "--enforce-eager")
        cmd.insert(0, "nohup")
        subprocess.Popen(cmd)
        """
    )
    assert [words(unit) for unit in found] == ["org/m --enforce-eager"]


def test_scripts_that_a_program_writes() -> None:
    found = units(
        '''\
        NAME = "org/a"
        open("a.sh", "w").write("#!/bin/bash\\nexport X=1\\nvllm serve " + NAME + " --port 1\\n")
        JOB = f"""#!/usr/bin/env bash
        #SBATCH --gpus=2
        srun vllm serve org/b --max-model-len {8 * 2}
        """
        lines = "\\n".join(["#!/bin/sh", "cd /x", "vllm serve org/c --seed 3"])
        HELP = """
        Run this:
        #!/bin/bash
        vllm serve org/d
        """
        assert text == "#!/bin/bash\\nvllm serve org/e"
        OTHER = "#!/usr/bin/python\\nvllm serve org/f"
        '''
    )
    assert [words(unit) for unit in found] == ["org/a --port 1", "org/b --max-model-len 16", "org/c --seed 3"]


def test_a_script_that_is_written_and_run_is_one_server() -> None:
    code = 'import subprocess\nS = "#!/bin/bash\\nvllm serve org/m"\n'
    code += 'open("s.sh", "w").write(S)\nsubprocess.run(S, shell=True)\n'
    assert [words(unit) for unit in units(code)] == ["org/m"]


@pytest.mark.parametrize(
    ("resources", "count", "names"),
    [
        ("Resources(cloud=x, accelerators='A100:4')", 4, ("A100",)),
        ("Resources(accelerators={'L4': 2})", 2, ("L4",)),
        ("sky.Resources(accelerators='H100')", 1, ("H100",)),
        ("Resources(gpu=GPU(memory='24GB', count=2))", 2, ()),
        ("Resources(gpu=GPU(name='A10', count=1))", 1, ("A10",)),
        ("Resources(cpus=4)", None, ()),
        ("[Resources(accelerators='A100:4'), Resources(accelerators='H100:2')]", None, ()),
    ],
)
def test_machines_that_a_task_is_given(resources: str, count: int | None, names: tuple[str, ...]) -> None:
    (unit,) = units(f"import sky\ntask = sky.Task(run='vllm serve org/m')\ntask.set_resources({resources})\n")
    assert [request.count for request in unit.gpu_requests] == ([] if count is None else [count])
    assert [hint.values for hint in unit.node_hints] == ([names] if names else [])


def test_commands_one_below_the_other() -> None:
    (unit,) = units("Service(image=x, commands=['pip install y', 'vllm serve org/m --port 1', *more])\n")
    assert words(unit) == "org/m --port 1"


def test_an_engine_that_is_made_of_its_arguments_is_one() -> None:
    found = units(
        """\
        from dataclasses import asdict
        from vllm import LLM, EngineArgs
        from vllm.config import KVTransferConfig
        transfer = KVTransferConfig(kv_connector="LMCacheConnectorV1", kv_role="kv_both")
        args = EngineArgs(model="org/m", kv_transfer_config=transfer, max_model_len=8)
        llm = LLM(**asdict(args))
        other = LLM(**asdict(unknown))
        """
    )
    assert [(unit.span.line, words(unit)) for unit in found] == [
        (5, '--model org/m --kv-transfer-config {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"} '
            "--max-model-len 8"),
        (7, "?asdict(unknown)"),
    ]  # fmt: skip


def test_objects_of_configuration_are_what_they_are_made_with() -> None:
    (unit,) = units(
        """\
        from vllm import LLM
        from vllm.config import CompilationConfig, Mode
        from elsewhere import Other
        LLM("org/m", compilation_config=CompilationConfig(level=3), a=CompilationConfig(mode=Mode.X), b=Other(c=1))
        """
    )
    assert words(unit) == (
        '--model org/m --compilation-config {"level": 3} --a ?CompilationConfig(mode=Mode.X) --b ?Other(c=1)'
    )


SETTINGS = """\
import subprocess
from dataclasses import asdict, dataclass, field, fields
@dataclass
class Settings:
    max_model_len: int
    seed: int = 1
    enforce_eager: bool = True
    quantization: str | None = None
    extra: list = field(default_factory=list)
settings = Settings(max_model_len=8)
cmd = ["vllm", "serve", "org/m"]
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for k, v in asdict(settings).items():\n    if v is None or v == []:\n        continue\n    flag = '--' + k\n"
         "    if isinstance(v, bool):\n        cmd.append(flag)\n    else:\n        cmd += [flag, str(v)]\n",
         "--max_model_len 8 --seed 1 --enforce_eager"),
        ("cmd += [x for k, v in vars(settings).items() if v for x in ('--' + k, str(v))]\n",
         "--max_model_len 8 --seed 1 --enforce_eager True"),
        ("for f in fields(settings):\n    value = getattr(settings, f.name)\n    if value:\n"
         "        cmd += [f'--{f.name}', str(value)]\n", "--max_model_len 8 --seed 1 --enforce_eager True"),
        ("for k, v in settings.model_dump().items():\n    if k in ('seed', 'max_model_len'):\n"
         "        cmd += ['--' + k, str(v)]\n", "--max_model_len 8 --seed 1"),
        ("for k, v in asdict(unknown).items():\n    cmd += ['--' + k, str(v)]\n", "?--k ?v"),
        ("for f in fields(unknown):\n    cmd += ['--' + f.name]\n", "?--f.name"),
        ("cmd += ['--seed', str(getattr(settings, 'seed', 3)), '--x', getattr(settings, 'none', 'y')]\n",
         "--seed 1 --x ?getattr(settings, 'none', 'y')"),
    ],
)  # fmt: skip
def test_fields_that_become_flags(code: str, expected: str) -> None:
    (unit,) = units(f"{SETTINGS}{code}subprocess.run(cmd)\n")
    assert words(unit) == f"org/m {expected}"


def test_an_engine_that_is_made_of_fields() -> None:
    (_, unit) = units(f"{SETTINGS}from vllm import LLM\nLLM('org/m', **asdict(settings))\n")
    assert words(unit) == "--model org/m --max-model-len 8 --seed 1 --enforce-eager --extra []"


def test_a_line_that_is_run_in_two_places_is_one_server() -> None:
    found = units(
        """\
        import subprocess
        def sh(line, capture=False):
            if capture:
                return subprocess.run(line, shell=True, capture_output=True)
            return subprocess.run(line, shell=True)
        sh("vllm serve org/a")
        sh("vllm serve org/b", capture=True)
        class Server:
            def __init__(self):
                self.command = ["vllm", "serve", "org/c"]
            def start(self):
                self.process = subprocess.Popen(self.command)
            def restart(self):
                self.process = subprocess.Popen(self.command)
        """
    )
    assert sorted(words(unit) for unit in found) == ["org/a", "org/b", "org/c"]


def test_containers_of_manifests_that_a_program_makes() -> None:
    text = """\
        import yaml

        SCRIPT = '''
        set -e
        exec vllm serve org/b --port 8001
        '''

        def deployment(model, gpus=1):
            engine = {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.9.0",
                "args": ["--model", model, "--tensor-parallel-size", str(gpus)],
                "env": [{"name": "HF_TOKEN", "valueFrom": {}}, {"name": "VLLM_USE_V1", "value": "1"}],
                "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
            }
            return {"spec": {"containers": [engine, {"image": "busybox", "command": ["sleep", "1"]}]}}

        print(yaml.dump(deployment("org/a", 2)))
        pod = {"image": f"vllm/vllm-openai:{TAG}", "command": ["/bin/bash", "-c"], "args": [SCRIPT]}
        rows = [{"image": "vllm.png", "text": "x"}, {"image": "a.png", "args": ["--model", "x"]}]
        """
    first, second = units(text)
    assert words(first) == "--model org/a --tensor-parallel-size 2"
    assert first.image is not None
    assert first.image.value == "vllm/vllm-openai:v0.9.0"
    assert [request.count for request in first.gpu_requests] == [2]
    assert {item.name for item in first.environment} == {"VLLM_USE_V1"}
    assert (first.span.line, words(second)) == (9, "org/b --port 8001")
    assert not units("import pytest\n" + dedent(text))


def test_a_container_of_a_manifest_is_one_server() -> None:
    text = """\
        pod = {
            "image": "registry/own:1",
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m"],
            "resources": {"limits": {"amd.com/gpu": LIMIT}},
        }
        """
    (unit,) = units(text)
    assert words(unit) == "--model org/m"
    assert [(request.count, request.reason) for request in unit.gpu_requests] == [(None, "not stated as a number")]


LINE = 'import os, subprocess\nline = "vllm serve org/m"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINE + 'line += " --port 1"\nos.system(line)', "org/m --port 1"),
        (LINE + 'if fast:\n    line += " --enforce-eager"\nline += " --port 1"\nos.system(line)',
         "org/m ?--enforce-eager --port 1"),
        (LINE + 'if fast:\n    line = line + " --enforce-eager"\nline = f"{line} --port 1"\nos.system(line)',
         "org/m ?--enforce-eager --port 1"),
        (LINE + 'line += " -tp 2" if many else ""\nline += " --port 1"\nos.system(line)', "org/m ?-tp 2 --port 1"),
        (LINE + 'if fast:\n    line = "X=1 " + line\nline += " --port 1"\nsubprocess.Popen(line, shell=True)',
         "org/m --port 1"),
        (LINE + 'for name in names:\n    line += f" --lora-modules {name}"\nos.system(line)',
         "org/m ?--lora-modules {name}"),
        ('import subprocess\nline = " ".join(["vllm", "serve", "org/m"])\nline += " --port 1"\n'
         "subprocess.run(line.split())", "org/m --port 1"),
        ('import subprocess\nmore = ""\nif fast:\n    more += " --enforce-eager"\n'
         'subprocess.call(["bash", "-c", f"vllm serve org/m{more} --port 1"])', "org/m ?--enforce-eager --port 1"),
        ('import os\ndef build(model, eager=False):\n    line = f"vllm serve {model}"\n    if eager:\n'
         '        line += " --enforce-eager"\n    return line\nos.system(build("org/m", eager=True))',
         "org/m --enforce-eager"),
        ('import subprocess\nwords = ["vllm", "serve", "org/m"]\nif fast:\n    words = words + ["--enforce-eager"]\n'
         'port = 1\nport = port + 1\nwords = words + ["--port", str(port)]\nsubprocess.Popen(words)',
         "org/m ?--enforce-eager --port 2"),
    ],
)  # fmt: skip
def test_a_command_line_that_grows(text: str, expected: str) -> None:
    (unit,) = units(text + "\n")
    assert words(unit) == expected


@pytest.mark.parametrize("line", ["x += x", 'x += f"{x} {x}"', "x += y\ny += x"])
def test_a_command_line_that_grows_beyond_measure(line: str) -> None:
    started = time.process_time()
    assert units('import os\nx = "vllm serve m "\ny = " "\n' + f"{line}\n" * 60 + "os.system(x)\n") == []
    assert time.process_time() - started < 5


GPUS = 'device_requests=[docker.types.DeviceRequest({}, capabilities=[["gpu"]])]'


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ('"vllm/vllm-openai:v0.11.0", ["--model", "org/m", "-tp", "2"], ' + GPUS.format("count=2"), 2),
        ('"vllm/vllm-openai:v0.11.0", "--model org/m -tp 2", ' + GPUS.format("count=-1"), None),
        ('image="vllm/vllm-openai:v0.11.0", command="--model org/m -tp 2", ' + GPUS.format('device_ids=["0", "3"]'), 2),
        ('"vllm/vllm-openai:v0.11.0", command=f"--model {MODEL} -tp 2"', 0),
    ],
)
def test_containers_of_dockers_library(given: str, count: int | None) -> None:
    text = f'import docker\nMODEL = "org/m"\nclient = docker.from_env()\nclient.containers.run({given})\n'
    (unit,) = units(text)
    assert (words(unit), unit.image and unit.image.value) == ("--model org/m -tp 2", "vllm/vllm-openai:v0.11.0")
    assert [request.count for request in unit.gpu_requests] == ([] if count == 0 else [count])


@pytest.mark.parametrize(
    "given", ['"busybox", "echo vllm serve"', '"redis:7", command="--port 1 --model org/m"', "image"]
)
def test_containers_of_dockers_library_that_serve_nothing(given: str) -> None:
    assert units(f"import docker  # vllm\nclient.containers.run({given})\n") == []
