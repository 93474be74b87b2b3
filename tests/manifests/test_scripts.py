"""Shell scripts, Dockerfiles, unit files, batch files, Makefiles: one small file of each pattern."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest

from kvgate.manifests.collect import collect
from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "run.sh", **others: str) -> list[ServeUnit]:
    files = [SourceFile(path, dedent(text))]
    files += [SourceFile(name.replace("__", "/").replace("_DOT_", "."), dedent(body)) for name, body in others.items()]
    return list(read_tree(files).units)


def one(text: str, path: str = "run.sh", **others: str) -> ServeUnit:
    (found,) = units(text, path, **others)
    return found


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def environment(unit: ServeUnit) -> dict[str, str]:
    return {item.name: item.value.value for item in unit.environment if item.value is not None}


# -- shell -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("exec vllm serve org/m --port 8000", "org/m --port 8000"),
        ("nohup python3 -m vllm.entrypoints.openai.api_server --model org/m > log 2>&1 &", "--model org/m"),
        ("uv run --with vllm -- vllm serve org/m -tp 2 | tee log", "org/m -tp 2"),
        ("hatch run -- vllm serve org/m", "org/m"),
        ("HF_HOME=/x env CUDA_VISIBLE_DEVICES=0 vllm serve org/m", "org/m"),
        ("ssh gpu01 'cd /srv && vllm serve org/m --port 1'", "org/m --port 1"),
        ('sshpass -p x ssh -o "ProxyCommand ssh -W %h:%p hop" gpu01 vllm serve org/m', "org/m"),
        ('tmux new-session -d -s v "vllm serve org/m --port 1"', "org/m --port 1"),
        ('M=org/m; tmux send-keys -t v "vllm serve $M" C-m', "org/m"),
        ("sg docker -c 'docker run --gpus all vllm/vllm-openai --model org/m'", "--model org/m"),
        ("gcloud compute ssh vm --zone=z --command='sudo docker run vllm/vllm-openai --model org/m'", "--model org/m"),
        ("M=org/m; ssh gpu01 <<EOF\ncd /srv\nvllm serve $M --port 1\nEOF", "org/m --port 1"),
        ("M=org/m; ssh gpu01 <<'EOF'\nvllm serve $M\nEOF", "?$M"),
        ("bash -s <<'EOF' > log\nvllm serve org/m\nEOF", "org/m"),
        ("cat <<'EOF' | sudo bash\nvllm serve org/m\nEOF", "org/m"),
        ("cat <<'EOF'\nvllm serve org/m\nEOF", ""),
        ("cat > start.sh <<'EOF'\nvllm serve org/m $1\nEOF\nbash ./start.sh --port=1", "org/m --port=1"),
        ("cat <<-EOF > $D/start.sh\n\tvllm serve org/m\nEOF\nchmod +x $D/start.sh\n$D/start.sh", "org/m"),
        ("sudo tee /opt/run <<'EOF'\n#!/bin/bash\nvllm serve org/m\nEOF", "org/m"),
        ("cat > notes.txt <<'EOF'\nvllm serve org/m\nEOF", ""),
        ('echo "vllm serve org/m"', ""),
        ("pkill -f 'vllm serve'", ""),
        ("$VENV/bin/vllm serve org/m", "org/m"),
        ("{{ venv }}/bin/python -m vllm.entrypoints.openai.api_server --model org/m", "--model org/m"),
        ('vllm serve "${1:-org/m}" "$@"', "org/m ?$@"),
    ],
)
def test_commands(line: str, expected: str) -> None:
    found = units(f"#!/bin/bash\n{line}\n")
    assert [words(unit) for unit in found] == ([expected] if expected else [])


def test_a_script_says_where_it_starts_the_server() -> None:
    unit = one("#!/bin/sh\nset -e\nexport VLLM_USE_V1=1\n\nvllm serve org/m\n")
    assert (unit.kind, unit.id, unit.span.line) == ("script", "run.sh", 5)
    assert environment(unit) == {"VLLM_USE_V1": "1"}


def test_arrays_and_regular_expressions() -> None:
    unit = one(
        """\
        MODEL=org/Coder-7B
        if [[ "$MODEL" =~ (coder|Coder) ]]; then PARSER=(--tool-call-parser coder); else PARSER=(); fi
        LEN=$((4 * 1024))
        vllm serve $MODEL --max-model-len $LEN "${PARSER[@]}"
        """
    )
    assert words(unit) == "org/Coder-7B --max-model-len 4096 --tool-call-parser coder"


MODES = """\
#!/bin/bash
MODE="${1:-small}"
case "$MODE" in
  small|large) ;;
  *) exit 1 ;;
esac
case "$MODE" in
  small)
    MODEL=org/small
    ;;
  large)
    MODEL=org/large ; EXTRA="-tp 4"
    ;;
esac
vllm serve $MODEL $EXTRA
"""


def test_a_script_with_modes_is_one_server_for_each() -> None:
    found = units(MODES)
    assert [(unit.id, unit.span.line) for unit in found] == [("run.sh/small", 8), ("run.sh/large", 11)]
    assert words(found[1]) == "org/large -tp 4"


def test_a_mode_of_another_engine_is_no_server() -> None:
    script = """
        #!/bin/bash
        OTHER=false
        case "${1:-small}" in
          small) MODEL=org/s ;;
          large) MODEL=org/l ;;
          gguf) OTHER=true ;;
        esac
        if [ "$OTHER" = true ]; then
          nohup llama-server -hf org/s-gguf &
          exit 0
        fi
        vllm serve "$MODEL"
    """
    assert [words(unit) for unit in units(script)] == ["org/s", "org/l"]


def test_what_a_mode_does_not_call_is_not_run() -> None:
    script = """
        start() { vllm serve "$2" --port "$3"; }
        start_all() { start a org/m 8001; start b org/n 8002; }
        case "$1" in
          start) start_all ;;
          stop) pkill vllm ;;
          logs) tail -f "$2.log" ;;
        esac
    """
    assert [words(unit) for unit in units(script)] == ["org/m --port 8001", "org/n --port 8002"]


def test_an_image_whose_dockerfile_a_script_writes() -> None:
    dockerfile = """cat > Dockerfile <<'EOF'
FROM vllm/vllm-openai:v0.9.0
RUN pip install x && \\
    true
CMD ["--model", "org/m", "--max-model-len", "4096"]
EOF
docker build -t mine .
"""
    unit = one("#!/bin/bash\n" + dockerfile)
    assert (words(unit), unit.span.line) == ("--model org/m --max-model-len 4096", 6)
    # one that is run with words of its own is read there
    unit = one("#!/bin/bash\n" + dockerfile + "docker run --gpus 1 vllm/vllm-openai:v0.9.0 --model org/n\n")
    assert words(unit) == "--model org/n"
    assert units("#!/bin/bash\n" + dockerfile.replace("CMD", "#CMD") + "# vllm serve\n") == []


def test_a_job_knows_what_it_asks_for() -> None:
    script = """
        #!/bin/bash
        #SBATCH -N 2
        #SBATCH --gres=gpu:a100:4
        #SBATCH --cpus-per-task=16
        #SBATCH --time=04:00:00
        vllm serve org/m -tp ${SLURM_GPUS_ON_NODE:-1} -pp $((SLURM_NNODES)) --port $SLURM_JOB_ID -dp $SLURM_GPUS
    """
    assert words(one(script)) == "org/m -tp 4 -pp 2 --port ?$SLURM_JOB_ID -dp ?$SLURM_GPUS"
    for lines, expected in (
        ("#SBATCH --gpus-per-node h100:8", "8 8 ?$SLURM_NNODES"),
        ("#SBATCH --gres=shard:2\n#SBATCH --nodes=1-4", "?$SLURM_GPUS_ON_NODE ?$SLURM_GPUS_PER_NODE ?$SLURM_NNODES"),
        ("##SBATCH --nodes=4\n#SBATCH --nodes=3", "?$SLURM_GPUS_ON_NODE ?$SLURM_GPUS_PER_NODE 3"),
    ):
        line = "vllm serve org/m --x $SLURM_GPUS_ON_NODE $SLURM_GPUS_PER_NODE $SLURM_NNODES"
        assert words(one(f"#!/bin/bash\n{lines}\n{line}\n")) == f"org/m --x {expected}"


def test_modes_that_change_nothing_are_no_servers() -> None:
    found = units('log() { case "$1" in info) echo;; warn) echo;; esac; }\nvllm serve org/m\n')
    assert [unit.id for unit in found] == ["run.sh"]


def test_a_script_that_stops_if_it_is_told_nothing_is_a_server_of_its_only_mode() -> None:
    script = """\
        usage() { echo "run.sh up|down"; exit 1; }
        case "${1:-}" in
          up) exec vllm serve org/m --port 8000 ;;
          down) pkill vllm ;;
          "") usage ;;
        esac
        """
    found = one(script)
    assert (found.id, words(found), found.span.line) == ("run.sh", "org/m --port 8000", 3)
    assert units(script.replace("vllm serve org/m", "llama-server -m x.gguf")) == []


def test_one_list_of_words_that_two_places_run_is_one_server() -> None:
    script = """\
        build() { WORDS=(vllm serve org/m --port "$1"); }
        ahead() { build 8000; exec "${WORDS[@]}"; }
        behind() { build 8000; nohup "${WORDS[@]}" > log & }
        case "$1" in
          up) ahead ;;
          chat) behind; chat ;;
        esac
        """
    found = one(script)
    assert (words(found), found.span.line) == ("org/m --port 8000", 2)
    other = [words(unit) for unit in units(script.replace("nohup", "CUDA_VISIBLE_DEVICES=1 nohup"))]
    assert other == ["org/m --port 8000"] * 2
    twice = "ssh a vllm serve org/m\nssh b vllm serve org/m\n"
    assert [unit.span.line for unit in units(twice)] == [1, 2]


def test_a_sourced_file_gives_variables() -> None:
    unit = one(". ./settings.env\nvllm serve $MODEL\n", "bin/serve.sh", bin__settings_DOT_env="MODEL=org/m\n")
    assert words(unit) == "org/m"


def test_a_script_that_another_runs_is_one_server_where_it_is_told_its_arguments() -> None:
    unit = one("bash inner.sh  # vllm\n", "run.sh", inner_DOT_sh="vllm serve org/m\n")
    assert (unit.path, words(unit)) == ("inner.sh", "org/m")
    unit = one("bash inner.sh org/other  # vllm\n", "run.sh", inner_DOT_sh="vllm serve ${1:-org/m}\n")
    assert (unit.path, words(unit)) == ("run.sh", "org/other")


def test_a_server_of_another_script_begins_where_that_is_run() -> None:
    inner = "M=${MODEL:-org/m}\nexec vllm serve $M --port ${PORT:-8000}\n"
    found = units(
        "HERE=$(dirname $0)\n# vllm\nPORT=8001 MODEL=org/a \\\n  bash $HERE/inner.sh &\n"
        "PORT=8002 bash $HERE/inner.sh &\nwait\n",
        inner_DOT_sh=inner,
    )
    assert [(unit.path, unit.span.line, words(unit)) for unit in found] == [
        ("run.sh", 3, "org/a --port 8001"),
        ("run.sh", 5, "org/m --port 8002"),
    ]
    # a function of a library begins where the script calls it
    found = units(
        ". ./inner.sh  # vllm\nstart org/a\n\nstart org/b\n", inner_DOT_sh="start() {\n  vllm serve $1 &\n}\n"
    )
    assert [(unit.span.line, words(unit)) for unit in found] == [(2, "org/a"), (4, "org/b")]


def test_jinja_around_statements_and_inside_a_command() -> None:
    unit = one(
        """\
        #!/bin/bash
        ARGS=(--port 8000)
        {% if vllm_lora %}
        ARGS+=(--enable-lora)
        {% endif %}
        vllm serve {{ vllm_model }} "${ARGS[@]}" \\
        {% if vllm_length is defined %}
          --max-model-len {{ vllm_length }} \\
        {% endif %}
          --enforce-eager
        """,
        "run.sh.j2",
    )
    expected = "?{{ vllm_model }} --port 8000 ?--enable-lora ?--max-model-len {{ vllm_length }} --enforce-eager"
    assert words(unit) == expected
    assert unit.words[-2].unresolved[0].reason.startswith("only if the template says so")


# -- containers --------------------------------------------------------------------------------------------------------


def test_docker_run() -> None:
    unit = one(
        """\
        #!/bin/bash
        IMAGE=vllm/vllm-openai:v0.10.2
        GPUS='"device=0,1"'
        sudo docker run -d --rm --gpus $GPUS --shm-size=16g -e VLLM_LOGGING_LEVEL=DEBUG -p8000:8000 \\
          -v "$PWD/cfg:/cfg" --name llm --label kvgate.dev/gpu=L4 $IMAGE \\
          --model org/m --config /cfg/serve.yaml -tp 2
        """,
        cfg__serve_DOT_yaml="max-model-len: 4096\nenforce-eager: true\n",
    )
    assert words(unit) == "--max-model-len 4096 --enforce-eager --model org/m --config /cfg/serve.yaml -tp 2"
    assert unit.image is not None
    assert (unit.image.value, unit.name, unit.span.line) == ("vllm/vllm-openai:v0.10.2", "llm", 4)
    assert [(request.resource, request.count) for request in unit.gpu_requests] == [("device", 2)]
    assert unit.shared_memory is not None
    assert unit.shared_memory.bytes == 16 * 2**30
    assert environment(unit) == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert unit.annotations["kvgate.dev/gpu"].value == "L4"


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ("--gpus all", None),
        ("--gpus 4", 4),
        ("--gpus=2", 2),
        ("--gpus all -e CUDA_VISIBLE_DEVICES=0,1,2", 3),
        ("--runtime=nvidia", None),
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2),
        ("--device=/dev/kfd --device=/dev/dri", None),
    ],
)
def test_gpus_of_docker_run(options: str, count: int | None) -> None:
    unit = one(f"docker run {options} vllm/vllm-openai org/m\n")
    assert [request.count for request in unit.gpu_requests] == [count]


@pytest.mark.parametrize(
    "line",
    [
        "docker run --rm curlimages/curl http://vllm:8000/v1/models",
        "docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server --model org/m",
        "docker build -t vllm/vllm-openai .",
        "docker pull vllm/vllm-openai",
        "docker run --gpus all vllm/vllm-openai bench serve --model org/m",
        "docker run --gpus all --entrypoint '' vllm/vllm-openai \"$@\"",
        "docker run --gpus all --entrypoint= vllm/vllm-openai vllm bench serve --model org/m",
        "docker run --gpus all",
        "docker",
    ],
)
def test_containers_that_are_no_server(line: str) -> None:
    assert units(line + "\n") == []


def test_options_of_docker_run_that_are_there_on_a_condition() -> None:
    script = """
        A=() B=()
        if (( SHARED == 1 )); then A+=(--ipc host); fi
        if have nvidia-smi; then B+=(--gpus all --runtime nvidia); fi
        docker run "${A[@]}" --env X=1 "${B[@]}" -p 1:2 vllm/vllm-openai:v0.9.0 --model org/m
    """
    unit = one(script)
    assert words(unit) == "--model org/m"
    assert unit.image is not None
    assert unit.image.value == "vllm/vllm-openai:v0.9.0"
    assert [(request.count, request.reason) for request in unit.gpu_requests] == [(None, "only if have nvidia-smi")]


def test_options_that_nobody_can_see() -> None:
    unit = one("podman run $GPU_FLAGS --entrypoint vllm quay.io/x/vllm-cuda serve org/m\n")
    assert (unit.image.value if unit.image else None, words(unit)) == ("quay.io/x/vllm-cuda", "org/m")


def test_an_empty_entry_point_clears_that_of_the_image() -> None:
    unit = one("docker run --gpus 2 --entrypoint '' vllm/vllm-openai vllm serve org/m --port 1\n")
    assert (words(unit), unit.entry) == ("org/m --port 1", "vllm serve")


def test_one_of_several_that_only_a_run_knows() -> None:
    unit = one('A=(org/a org/b)\nvllm serve "${A[$SLURM_ARRAY_TASK_ID]}"\n')
    assert [item.reason for item in unit.words[0].unresolved] == [
        "which element of A is taken is known at run time only"
    ]
    unit = one('select m in org/a org/b; do\n  break\ndone\nvllm serve "$m" --port 1\n')
    assert (words(unit), unit.words[0].unresolved[0].reason) == ("?$m --port 1", "m is asked for at run time")


@pytest.mark.parametrize(
    ("line", "count", "name"),
    [
        ("srun -p x --gres=gpu:4 -J y vllm serve org/m", 4, None),
        ("srun --time=1:00 \\\n  --gpus-per-node=h100:2 vllm serve org/m", 2, "h100"),
        ("srun -G 2 apptainer run --nv vllm.sif vllm serve org/m", 2, None),
        ("#SBATCH --gres=gpu:a100:8\nsrun --gres=gpu:4 vllm serve org/m", 8, "a100"),
        ("srun --nodes=2 --gpus-per-node=4 vllm serve org/m", None, None),
        ("# srun --gres=gpu:4\nvllm serve org/m", None, None),
    ],
)
def test_the_gpus_of_a_job(line: str, count: int | None, name: str | None) -> None:
    unit = one(f"#!/bin/bash\n{line}\n")
    assert [request.count for request in unit.gpu_requests] == ([] if count is None else [count])
    assert [hint.values for hint in unit.node_hints] == ([] if name is None else [(name,)])


def test_what_a_script_is_told_when_it_starts() -> None:
    reason = "MODEL is empty unless the script is told it"
    for script in (
        'MODEL="${1:-}"\nif [ -z "$MODEL" ]; then exit 1; fi\nvllm serve "$MODEL" --port 1\n',
        'MODEL=""\nwhile [[ $# -gt 0 ]]; do case $1 in --model) MODEL="$2"; shift 2;; esac; done\n'
        'vllm serve "$MODEL" --port 1\n',
        'MODEL=${MODEL:-}\ndocker run --gpus 1 vllm/vllm-openai "${MODEL}" --port 1\n',
    ):
        unit = one(script)
        assert words(unit).replace("{", "").replace("}", "") == "?$MODEL --port 1"
        assert [item.reason for item in unit.words[0].unresolved] == [reason]
    # what is written as empty is empty
    assert words(one("vllm serve org/m --api-key '' --port 1\n")) == "org/m --api-key  --port 1"


# -- Dockerfiles -------------------------------------------------------------------------------------------------------


def test_dockerfile() -> None:
    unit = one(
        """\
        # syntax=docker/dockerfile:1
        ARG VERSION=v0.11.0
        FROM vllm/vllm-openai:${VERSION} AS base
        ENV HF_HOME=/models \\
            # a comment between the lines
            MODEL="org/m"
        RUN pip install "vllm==0.11.1" && vllm serve never
        FROM base
        ENTRYPOINT ["vllm", "serve"]
        CMD ["org/m", "--max-model-len", "4096"]
        """,
        "llm/Dockerfile",
    )
    assert (unit.kind, unit.span.line, words(unit)) == ("dockerfile", 9, "org/m --max-model-len 4096")
    assert unit.image is not None
    assert unit.image.value == "vllm/vllm-openai:v0.11.0"
    assert environment(unit) == {"HF_HOME": "/models", "MODEL": "org/m"}
    assert unit.requirement is not None
    assert unit.requirement.value == "vllm==0.11.1"


def test_dockerfile_in_shell_form() -> None:
    unit = one(
        "FROM nvcr.io/nvidia/pytorch:25.01-py3\nENV LEN 2048\nCMD vllm serve org/m --max-model-len $LEN\n", "Dockerfile"
    )
    assert words(unit) == "org/m --max-model-len 2048"


def test_dockerfile_with_a_script_of_the_context() -> None:
    unit = one(
        'FROM vllm/vllm-openai\nWORKDIR /app\nCOPY serve.sh ./\nENTRYPOINT ["./serve.sh"]\n',
        "llm/Dockerfile",
        llm__serve_DOT_sh="#!/bin/sh\nexec vllm serve org/m\n",
    )
    assert (unit.path, words(unit)) == ("llm/Dockerfile", "org/m")


def test_dockerfile_whose_script_is_not_at_hand() -> None:
    unit = one('FROM vllm/vllm-openai:v0.9.0\nENTRYPOINT ["./serve.sh"]\n', "Dockerfile")
    assert unit.words[0].unresolved[0].reason == "the script is not among the files read"


@pytest.mark.parametrize(
    "text",
    [
        "FROM vllm/vllm-openai\nRUN pip install lmcache\n",
        "FROM python:3.12\nRUN pip install vllm\nRUN vllm serve org/m &\nCMD [\"python\", \"client.py\"]\n",
        "FROM vllm/vllm-openai AS server\nENTRYPOINT [\"vllm\", \"serve\"]\nFROM nginx\nCMD [\"nginx\"]\n",
        "RUN no stage\n",
        "FROM\n",
    ],
)  # fmt: skip
def test_dockerfiles_that_start_no_server(text: str) -> None:
    assert units(text, "Dockerfile") == []


@pytest.mark.parametrize(
    ("path", "program"),
    [("vllm/Dockerfile.benchmark", "/app/run.py"), ("vllm/Dockerfile", "/app/vllm_benchmark.py")],
)
def test_the_image_of_a_program_beside_vllm_serves_nothing(path: str, program: str) -> None:
    text = f'FROM python:3.11-slim\nENV MODEL=org/m\nCMD ["python", "{program}"]\n'
    assert units(text, path) == []


def test_two_ways_to_one_command_line_are_one_server() -> None:
    script = "if command -v supervise; then\n  exec supervise vllm serve org/m\nfi\nexec vllm serve org/m\n"
    files = {"run.sh": script}
    dockerfile = 'FROM vllm/vllm-openai\nCOPY run.sh /run.sh\nENTRYPOINT ["/run.sh"]\n'
    found = units(dockerfile, "Dockerfile", **{name.replace(".", "_DOT_"): body for name, body in files.items()})
    assert [(unit.path, words(unit)) for unit in found] == [("Dockerfile", "org/m")]


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ('[ "$1" = "{}" ]', "1"),
        ("[[ $1 == {} ]]", "1"),
        ('[[ "${{1:-}}" == "{}" ]]', "1"),
        ("[ $MODE = {} ]", "MODE"),
        ('[[ "${{MODE}}" == "{}" ]]', "MODE"),
    ],
)
def test_modes_that_a_script_compares_its_first_argument_with(test: str, name: str) -> None:
    first = "MODE=${1:-chat}\n" if name == "MODE" else ""
    script = (
        f"{first}if {test.format('chat')}; then\n  M=org/chat; P=1\nelif {test.format('embed')}; then\n"
        f"  M=org/embed; P=2\nelse\n  exit 1\nfi\nvllm serve $M --port $P\n"
    )
    found = units(script, "run.sh")
    assert [words(unit) for unit in found] == ["org/chat --port 1", "org/embed --port 2"]
    assert [unit.span.text for unit in found] == ["chat", "embed"]


def test_a_comparison_in_a_function_is_no_mode() -> None:
    script = """\
        start() {
            kind=$1
            if [ "$kind" = "sglang" ]; then
                python -m sglang.launch_server --model $2
            elif [ "$kind" = "vllm" ]; then
                vllm serve $2
            fi
        }
        start vllm org/a
        start vllm org/b
        """
    found = units(script, "run.sh")
    assert [(words(unit), unit.span.line) for unit in found] == [("org/a", 6), ("org/b", 6)]


@pytest.mark.parametrize("line", ['sbatch --gpus=2 --wrap="{}"', "bsub -gpu num=4 '{}'", "sbatch --wrap '{}'"])
def test_jobs_that_are_handed_a_command_line(line: str) -> None:
    assert words(one(line.format("cd /x && vllm serve org/m") + "\n", "run.sh")) == "org/m"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"$ENGINE" run -d --gpus all -e A=1 docker.io/vllm/vllm-openai:v0.9.0 --model org/m', "--model org/m"),
        ("${ENGINE:-$(detect)} run --rm vllm/vllm-openai-cpu:v0.9.0 org/m --port 1", "org/m --port 1"),
        ('"$UV" run --with vllm vllm serve org/m', "org/m"),
        ("$RUNNER run vllm serve org/m", "org/m"),
        ("$ENGINE run -d nginx --model org/m --max-model-len 1", None),
        ("$ENGINE rm vllm/vllm-openai --model org/m", None),
    ],
)
def test_programs_in_a_variable_that_run_an_image(line: str, expected: str | None) -> None:
    assert [words(unit) for unit in units(line + "\n", "run.sh")] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    "lines",
    [
        "COPY <<EOF /app/start.sh\n#!/bin/bash\nexec vllm serve org/m --port $PORT\nEOF",
        "COPY --chmod=755 <<'EOF' start.sh\n#!/bin/bash\nexec vllm serve org/m --port $PORT\nEOF",
        "RUN cat > start.sh <<'EOF' && chmod +x start.sh\n#!/bin/bash\nexec vllm serve org/m --port $PORT\nEOF",
        "RUN <<EOF\nmkdir -p x\necho 'vllm serve org/m --port $PORT' > /app/start.sh\nEOF",
        "RUN printf '#!/bin/bash\\nexec vllm serve org/m --port $PORT\\n' > /app/start.sh",
        "RUN printf '%s\\n' 'vllm serve org/m --port $PORT' > /app/start.sh",
        "RUN echo '#!/bin/bash' > start.sh && \\\n  echo 'vllm serve org/m \\' >> start.sh && "
        "echo '--port $PORT' >> start.sh",
        "RUN echo '#!/bin/sh' > start.sh\nRUN echo -e 'cd /\\nvllm serve org/m --port $PORT' >> ./start.sh",
        'RUN echo "vllm serve org/m --port \\$PORT" > /tmp/x.sh; echo "vllm serve org/m --port $PORT" > start.sh',
    ],
)
@pytest.mark.parametrize("program", ['["/app/start.sh"]', '["bash", "start.sh"]', "./start.sh"])
def test_a_script_that_a_dockerfile_writes(lines: str, program: str) -> None:
    text = f"FROM vllm/vllm-openai:v0.10.2\nWORKDIR /app\nENV PORT=9000\n{lines}\nENTRYPOINT {program}\n"
    assert words(one(text, "Dockerfile")) == "org/m --port 9000"


def test_scripts_that_a_script_prints_into_files() -> None:
    script = """\
        echo "#!/bin/bash" > job.sh
        echo "#SBATCH --gpus=2" >> job.sh
        echo "vllm serve ${MODEL:-org/m} --tensor-parallel-size 2" >> job.sh
        sbatch job.sh
        echo "vllm serve org/x" >> README.md
        echo "vllm serve org/y" | tee -a log.txt
        """
    unit = one(script, "run.sh")
    assert words(unit) == "org/m --tensor-parallel-size 2"
    assert unit.span.line == 3


# -- unit files --------------------------------------------------------------------------------------------------------


def test_systemd() -> None:
    unit = one(
        """\
        [Unit]
        Description=vLLM
        [Service]
        Environment="MODEL=org/m" LEN=4096
        Environment=CUDA_VISIBLE_DEVICES=0,1
        EnvironmentFile=-/etc/vllm.env
        ExecStartPre=/usr/bin/echo vllm serve no
        ExecStart=-/opt/venv/bin/vllm serve ${MODEL} \\
            --max-model-len $LEN \\
            # more to come
            --served-model-name %i --port ${PORT}
        """,
        "vllm@.service",
        vllm_DOT_env="PORT=9000\n",
    )
    assert words(unit) == "org/m --max-model-len 4096 --served-model-name ?%i --port 9000"
    assert (unit.kind, unit.span.line) == ("systemd", 8)
    assert [request.count for request in unit.gpu_requests] == [2]


def test_a_wrapper_that_serves_is_told_the_model() -> None:
    unit = one(
        """
        [Service]
        ExecStart=/usr/bin/docker run --gpus all --entrypoint python3 ghcr.io/o/vllm-x:1 \\
            /opt/guard.py serve /models/m --max-model-len 4096 --max-num-seqs 8 --enforce-eager
        """,
        "vllm-m.service",
    )
    assert words(unit) == "/models/m --max-model-len 4096 --max-num-seqs 8 --enforce-eager"
    assert unit.positional_model


def test_a_unit_and_its_variables_that_a_script_writes() -> None:
    script = """
        #!/bin/bash
        IMAGE=vllm/vllm-openai:v0.9.0
        cat > /etc/vllm/m.env << 'EOF'
        # which model
        VLLM_MODEL=org/m
        LENGTH=8192
        EOF
        sudo tee /etc/systemd/system/vllm.service > /dev/null << UNIT
        [Service]
        EnvironmentFile=-/etc/vllm/m.env
        EnvironmentFile=/etc/vllm/none.env
        ExecStart=docker run --gpus all $IMAGE \\\\
          vllm serve \\$VLLM_MODEL --max-model-len \\${LENGTH}
        UNIT
    """
    unit = one(script)
    assert words(unit) == "org/m --max-model-len 8192"
    assert unit.image is not None
    assert unit.image.value == "vllm/vllm-openai:v0.9.0"


def test_systemd_as_jinja() -> None:
    unit = one(
        """\
        [Service]
        ExecStart={{ dir }}/bin/vllm serve {{ model }} \\
          --enable-prefix-caching{% if key is defined %} \\
          --api-key {{ key }}{% endif %}

        """,
        "vllm.service.j2",
    )
    assert words(unit) == "?{{ model }} --enable-prefix-caching ?--api-key {{ key }}"


def test_systemd_with_docker_and_with_a_script() -> None:
    unit = one("[Service]\nExecStart=/usr/bin/docker run --gpus 2 vllm/vllm-openai:v0.9.1 --model org/m\n", "a.service")
    assert (words(unit), [request.count for request in unit.gpu_requests]) == ("--model org/m", [2])
    unit = one(
        "[Service]\nEnvironment=PORT=1\nExecStart=/srv/vllm/start.sh\n",
        "deploy/vllm.service",
        deploy__start_DOT_sh="vllm serve org/m --port ${PORT:-2}\n",
    )
    assert (unit.kind, words(unit)) == ("systemd", "org/m --port 1")


def test_quadlet() -> None:
    unit = one(
        """\
        [Container]
        Image=docker.io/vllm/vllm-openai:v0.10.0
        AddDevice=nvidia.com/gpu=all
        ShmSize=8g
        Environment=HF_HOME=/m
        Exec=--model org/m --max-model-len 2048
        """,
        "llm.container",
    )
    assert (unit.kind, words(unit)) == ("quadlet", "--model org/m --max-model-len 2048")
    assert unit.shared_memory is not None
    assert unit.shared_memory.bytes == 8 * 2**30


# -- Windows, make -----------------------------------------------------------------------------------------------------


def test_batch() -> None:
    unit = one(
        "@echo off\r\nREM vllm serve no\r\nif not defined MODEL set MODEL=org/m\r\nset LEN=4096\r\n"
        'set "EXTRA=--enforce-eager -tp 2"\r\n'
        'python -m vllm.entrypoints.openai.api_server ^\r\n  --model "%MODEL%" --max-model-len %LEN% ^\r\n'
        "  %EXTRA% %* --port %PORT%\r\n",
        "start.bat",
    )
    assert words(unit) == "--model org/m --max-model-len 4096 --enforce-eager -tp 2 ?%* --port ?%PORT%"
    assert environment(unit) == {"MODEL": "org/m", "LEN": "4096", "EXTRA": "--enforce-eager -tp 2"}
    assert unit.span.line == 6


def test_powershell() -> None:
    unit = one(
        "$env:CUDA_VISIBLE_DEVICES = \"0\"\n$model = 'org/m'\ndocker run --gpus all vllm/vllm-openai `\n"
        "  --model $model --port $Port\n",
        "start.ps1",
    )
    assert words(unit) == "--model org/m --port ?$Port"


def test_texts_of_powershell_that_are_put_behind_each_other() -> None:
    unit = one(
        "$model = 'org/m'\n$more = \"--enforce-eager\"\n"
        '$line = "source ~/v/bin/activate && vllm serve $model " +\n'
        '  "--limit-mm-per-prompt \'{`"image`": 0}\' --port $Port " + $more\n'
        "wsl -d Ubuntu -- bash -c $line 2>&1 | Tee-Object -FilePath $log\n",
        "start.ps1",
    )
    assert words(unit) == 'org/m --limit-mm-per-prompt {"image": 0} --port ?$Port --enforce-eager'
    # nothing is added to what ends a file
    assert units('$line = "vllm serve org/m" +', "start.ps1") == []


def test_powershell_lists() -> None:
    arguments = (
        '$Model = "org/m"\n$VllmArgs = @(\n    "--port", "8080"\n    # of the host\n'
        "    '--hf-overrides', '{\"a\": 1}'\n)\n"
        'if ($Eager) {\n    $VllmArgs += "--enforce-eager"\n}\n$vllmargs += "--max-num-seqs", "4"\n'
    )
    expected = '--port 8080 --hf-overrides {"a": 1} ?--enforce-eager --max-num-seqs 4'
    assert words(one(arguments + "vllm serve $Model $VllmArgs\n", "start.ps1")) == f"org/m {expected}"
    splatted = (
        arguments
        + '$Run = @("run", "--gpus", "all", "vllm/vllm-openai",\n  "--model", $Model, $VllmArgs)\ndocker @Run\n'
    )
    assert words(one(splatted, "start.ps1")) == f"--model org/m {expected}"
    # a list that does not end
    assert units("$A = @(\nvllm serve org/m\n", "start.ps1") == []


def test_a_job_that_several_here_documents_write() -> None:
    unit = one(
        "F=jobs/$1.sbatch\ncat > $F <<'EOF'\n#!/bin/bash\n#SBATCH --gpus=1\nEOF\n"
        "cat >> $F <<EOF\nvllm serve org/m \\\\\nEOF\ncat >> $F <<'EOF'\n  -tp 2\nEOF\nsbatch $F\n"
    )
    assert words(unit) == "org/m -tp 2"


def test_makefile() -> None:
    found = units(
        "MODEL ?= org/m\nFLAGS = --max-model-len 4096\nFLAGS += -tp 2\n\nserve: deps\n\t@vllm serve $(MODEL) \\\n"
        "\t\t$(FLAGS) --port $(PORT)\n\ntest:\n\tcurl vllm:8000\n",
        "Makefile",
    )
    assert [(unit.id, words(unit)) for unit in found] == [
        ("Makefile/serve", "org/m --max-model-len 4096 -tp 2 --port ?$(PORT)")
    ]


def test_values_of_several_lines_in_a_makefile() -> None:
    text = (
        "model = org/m\ndefine args =\n--served-model-name chat \\\n--max-model-len 4096\nendef\n"
        "define never\nends\nserve:\n\tvllm serve x\n"
    )
    serve = "serve:\n\tpython -m vllm.entrypoints.openai.api_server \\\n\t--model $(model) $(args)\n"
    unit = one(serve + text, "Makefile")
    assert words(unit) == "--model org/m --served-model-name chat --max-model-len 4096"
    assert unit.words[4].span.line == 7


def test_targets_that_run_another_with_settings_of_their_own() -> None:
    text = """\
        MODEL ?= org/m
        PORT := 8000
        serve:
        \tvllm serve $(MODEL) --port $(PORT) $(MORE)

        large: MODEL = org/large
        large: serve

        two: ; true
        both:
        \t@echo "make serve MODEL=org/shown"
        \t$(MAKE) serve MODEL=org/a \\
        \t  PORT="8001" MORE=--enforce-eager
        \tcd x && make serve PORT=8002 && $(MAKE) -C other serve MODEL=org/x
        again: serve
        \t$(MAKE) serve
        \t# make serve MODEL=org/y
        """
    assert [(unit.id, unit.span.line, words(unit)) for unit in units(text, "Makefile")] == [
        ("Makefile/serve", 4, "org/m --port 8000 ?$(MORE)"),
        ("Makefile/large", 6, "org/large --port 8000 ?$(MORE)"),
        ("Makefile/both", 12, "org/a --port 8001 --enforce-eager"),
        ("Makefile/both/2", 14, "org/m --port 8002 ?$(MORE)"),
    ]
    told = "serve:\n\tvllm serve $(MODEL)\nserve: MODEL = org/m\nother: MODEL = org/o\nother:\n\tvllm serve $(MODEL)\n"
    assert [words(unit) for unit in units(told, "Makefile")] == ["org/m", "org/o"]
    just = 'serve model port="8000":\n  vllm serve {{model}} --port {{port}}\n\nbig:\n  @just serve "org/b" 8001\n'
    assert [(unit.id, words(unit)) for unit in units(just, "justfile")] == [("justfile/big", "org/b --port 8001")]


def test_justfile() -> None:
    unit = one('model := "org/m"\n\nserve port="8000":\n    vllm serve {{model}} --port {{port}}\n', "justfile")
    assert words(unit) == "org/m --port 8000"
    same = 'model := "org/m"\nserve model=model name=model:\n    vllm serve {{model}} --served-model-name {{name}}\n'
    assert words(one(same, "justfile")) == "org/m --served-model-name org/m"
    assert words(one(same.replace("model=model", "model"), "justfile")).startswith("?{{model}} --")


@pytest.mark.parametrize("path", ["justfile", ".justfile", "tools/serve.just"])
def test_values_and_parameters_of_a_justfile(path: str) -> None:
    text = (
        "model := env(\"MODEL\", \"org/m\")\nport := env_var_or_default('PORT', '8000')\nserved-name := model\n"
        "size := '4096'\nlonger := size + '0'\n\n"
        'serve gpus="2" size *args: build other\n'
        "    vllm serve {{model}} --port {{ port }} --served-model-name {{served-name}} -tp {{gpus}} "
        "--max-model-len {{size}} --max-num-batched-tokens {{longer}} {{args}} {{served-name}}\n"
    )
    assert words(one(text, path)) == (
        "org/m --port 8000 --served-model-name org/m -tp 2 --max-model-len ?{{size}} "
        "--max-num-batched-tokens ?size + '0' ?{{args}} org/m"
    )


# -- files -------------------------------------------------------------------------------------------------------------


def test_which_files_of_a_folder_are_read(tmp_path: Path) -> None:
    for name, text in {
        "serve.sh": "vllm serve org/m\n",
        "other.sh": "make all\n",
        "entry": "#!/bin/bash\nvllm serve org/m\n",
        "notes": "vllm serve org/m\n",
        "README.md": "vllm serve org/m\n",
        "docker/vllm.Dockerfile": 'FROM x\nCMD ["vllm", "serve", "org/m"]\n',
        "vllm.service.j2": "[Service]\nExecStart=vllm serve org/m\n",
        "client.py": "import openai\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = collect([tmp_path], tmp_path)
    assert [file.path for file in found.files] == ["docker/vllm.Dockerfile", "entry", "serve.sh", "vllm.service.j2"]
    assert len(read_tree(found.files, tmp_path).units) == 4


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#!/usr/bin/env bash\nvllm serve org/m\n", "script"),
        ("vllm serve org/m \\\n  --port 1\n", "script"),
        ("# c\nFROM x\nCMD vllm serve org/m\n", "dockerfile"),
        ("[Service]\nExecStart=vllm serve org/m\n", "systemd"),
        ("@echo off\nvllm serve org/m\n", "script"),
        ("services: {a: {image: vllm/vllm-openai, command: --model org/m}}\n", "compose"),
    ],
)
def test_a_file_without_a_telling_name(text: str, kind: str) -> None:
    (found,) = read_tree([SourceFile("-", text)], named=frozenset({"-"})).units
    assert found.kind == kind


def test_a_compose_file_as_jinja() -> None:
    unit = one(
        """\
        services:
        {% for model in models %}
          llm:
            image: vllm/vllm-openai:{{ version }}
            command: --model {{ model }} --max-model-len 4096
        {% if gpus %}
            shm_size: 8g
        {% endif %}
        {% endfor %}
        """,
        "compose.yml.j2",
    )
    assert words(unit) == "--model ?{{ model }} --max-model-len 4096"
    assert unit.span.line == 3


@pytest.mark.parametrize(
    "text",
    ["{" * 60_000, "<<EOF\nkind:\n" * 20_000, "a|" * 60_000, "x=(" * 60_000, "case $1 in\n" + " " * 60_000 + "esac\n"],
    ids=["braces", "here documents", "pipes", "arrays", "blanks"],
)
def test_hostile_scripts_cost_little(text: str) -> None:
    begin = time.process_time()
    units("vllm serve m\n" + text)
    assert time.process_time() - begin < 8


def test_a_here_document_ends_at_its_own_word() -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
        "  containers: [{name: v, image: vllm/vllm-openai, args: [--model=%s]}]\n"
    )
    apply = "kubectl apply -f - <<"
    text = f"cat <<ONE\nnothing\nTWO\nONE\n{apply}'TWO'\n{pod % 'a'}TWO\n{apply}NEVER\n{pod % 'b'}"
    assert [words(unit) for unit in units(text)] == ["--model=a"]


@pytest.mark.parametrize("path", ["Makefile", "justfile"])
def test_hostile_makefiles_cost_little(path: str) -> None:
    begin = time.process_time()
    units("serve:\n\tvllm serve m\n" + "a" * 200_000, path)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "M=org/m\nsudo tee /etc/v.service <<EOF\n[Unit]\nDescription=v\n[Service]\nEnvironment=P=80\n"
            "ExecStart=/v/bin/vllm serve ${M} \\\\\n  --port \\$P --max-model-len $LEN\nEOF\nsystemctl start v\n",
            [("systemd", 7, "org/m --port 80 --max-model-len ?$LEN")],
        ),
        (
            "cat > compose.yml <<'EOF'\nservices:\n  chat:\n    image: vllm/vllm-openai:v0.8.5\n"
            "    command: [--model, '${M:-org/m}']\nEOF\ndocker compose up -d\n",
            [("compose", 3, "--model org/m")],
        ),
        (
            "M=org/m\ncat > compose.yml <<EOF\nservices:\n  chat:\n    image: vllm/vllm-openai:v0.8.5\n"
            "    command: --model $M\nEOF\n",
            [("compose", 4, "--model org/m")],
        ),
        ("cat <<'EOF'\n[Service]\nExecStart=/usr/bin/ollama serve  # no vllm\nEOF\n", []),
        ("cat > values.txt <<'EOF'\nservices: vllm\nEOF\n", []),
    ],
)
def test_files_that_a_script_writes_out(text: str, expected: list[tuple[str, int, str]]) -> None:
    assert [(unit.kind, unit.span.line, words(unit)) for unit in units("#!/bin/bash\n" + text)] == [
        (kind, line + 1, arguments) for kind, line, arguments in expected
    ]


def test_programs_of_supervisor() -> None:
    text = (
        "[supervisord]\nnodaemon=true\n\n[program:chat]\n"
        "command=/opt/venv/bin/vllm serve %(ENV_MODEL)s --max-model-len 8192\n"
        "  --served-model-name 'a b'\n"
        'environment=CUDA_VISIBLE_DEVICES="0,1",HF_HOME=/x\n[program:web]\ncommand=nginx -g "daemon off;"\n'
    )
    (found,) = units(text, "supervisord.conf")
    assert (found.kind, found.id, found.span.line) == ("supervisor", "supervisord.conf/chat", 5)
    assert words(found).startswith("?%(ENV_MODEL)s --max-model-len 8192")
    assert environment(found) == {"CUDA_VISIBLE_DEVICES": "0,1", "HF_HOME": "/x"}
    assert [request.count for request in found.gpu_requests] == [2]


def test_processes_of_a_procfile() -> None:
    text = "web: vllm serve org/m --port $PORT\nworker: python worker.py  # vllm serve\n"
    (found,) = units(text, "Procfile")
    assert (found.kind, found.id, found.span.line) == ("script", "Procfile/web", 1)
    assert words(found) == "org/m --port ?$PORT"


@pytest.mark.parametrize(
    "place",
    [
        'vllm serve --config "$ROOT/conf/engine.yaml"',
        'CONFIG="${CONFIG:-$ROOT/conf/engine.yaml}"; "$VENV/bin/vllm" serve --config=$CONFIG',
        'vllm serve --config $(dirname "$0")/conf/engine.yaml',
        "vllm serve --config ./conf/engine.yaml",
    ],
)
def test_a_config_file_beside_the_script(place: str) -> None:
    script = 'ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\nVENV=/opt/venv\n' + place + "\n"
    settings = "model: org/m\nmax-model-len: 4096\nmiddleware: []\nmax-num-seqs: 8\n"
    (unit,) = units(script, "bin/run.sh", conf__engine_DOT_yaml=settings)
    assert words(unit).startswith("--model org/m --max-model-len 4096 --max-num-seqs 8 ")
    assert unit.notes == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("cat > $CONF <<EOF\nmodel: $MODEL\nmax-num-seqs: $SEQS\nEOF", "--model org/m --max-num-seqs 8 "),
        ("cat <<'EOF' | tee $CONF\nmodel: org/m\nmax-num-seqs: 4\nEOF", "--model org/m --max-num-seqs 4 "),
        ('echo "model: $MODEL" > $CONF; echo "seed: 1" >> "$CONF"', "--model org/m --seed 1 "),
        ("[ -f $CONF ] || cat > $CONF <<EOF\nmodel: org/m\nEOF", "--model org/m "),
        # which of them it is nobody knows
        ('echo "model: org/a" > $CONF\nif [ -n "$B" ]; then echo "model: org/b" > $CONF; fi', ""),
        ('echo "model: org/a" > $CONF\nif [ -n "$B" ]; then echo "seed: 1" >> $CONF; fi', ""),
        ("cat > /tmp/other.yaml <<EOF\nmodel: org/m\nEOF", ""),
    ],
)
@pytest.mark.parametrize("sign", [" ", "="])
def test_a_config_file_that_the_script_writes(written: str, expected: str, sign: str) -> None:
    script = f'CONF=/tmp/vllm.yaml\nMODEL=org/m\nSEQS=8\n{written}\nvllm serve --config{sign}"$CONF" --port 80\n'
    (unit,) = units(script, "run.sh")
    assert words(unit) == f"{expected}--config{sign}/tmp/vllm.yaml --port 80"
    assert bool(unit.notes) == (not expected)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [("VLLM_NO_USAGE_STATS=1", []), ("MODEL=org/m", ["/opt/llm/start-vllm.sh"])],
)
def test_a_service_that_runs_a_script_elsewhere_is_a_server_where_it_is_told_of_one(
    environment: str, expected: list[str]
) -> None:
    text = f"[Service]\nEnvironment={environment}\nExecStart=/opt/llm/start-vllm.sh\n"
    reading = read_tree([SourceFile("etc/vllm.service", text)])
    assert [unit.entry for unit in reading.units] == expected
    why = "/opt/llm/start-vllm.sh, which a service of vLLM's name runs here, is not among the files read"
    assert [place.reason for place in reading.unread] == ([] if expected else [why])
