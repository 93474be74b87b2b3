"""Apptainer and Singularity: containers that scripts start, and the definition files of images."""

from __future__ import annotations

import pytest

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, path: str = "serve.sh") -> list[ServeUnit]:
    return list(read_tree([SourceFile(path, text)]).units)


def shown(unit: ServeUnit) -> tuple[str, str | None]:
    words = " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)
    return words, unit.image and unit.image.value


def environment(unit: ServeUnit) -> dict[str, str | None]:
    return {variable.name: variable.value and variable.value.value for variable in unit.environment}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "apptainer run --nv -B /m:/m docker://vllm/vllm-openai:v0.9.0 --model org/m --port 80",
            ("--model org/m --port 80", "vllm/vllm-openai:v0.9.0"),
        ),
        (
            "singularity -s instance run --nv --bind /m:/m $DIR/vllm-openai_v0.8.5.sif name --model /m/x --port 80",
            ("--model /m/x --port 80", "vllm/vllm-openai:v0.8.5"),
        ),
        (
            "singularity exec --nv --env=A=1 /images/vllm.sif vllm serve org/m --port 80 &",
            ("org/m --port 80", None),
        ),
        (
            "apptainer exec $OPTIONS \"$SIF\" bash -c 'vllm serve org/m --port 80'",
            ("org/m --port 80", None),
        ),
        (
            "srun apptainer run --nv $VLLM_IMAGE --model org/m --max-model-len 4096 --tensor-parallel-size 2",
            ("--model org/m --max-model-len 4096 --tensor-parallel-size 2", None),
        ),
    ],
)
def test_what_a_container_serves(command: str, expected: tuple[str, str | None]) -> None:
    (unit,) = units(f"#!/bin/bash\n{command}\n")
    assert shown(unit) == expected


@pytest.mark.parametrize(
    "command",
    [
        "apptainer run --nv docker://lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path org/m",
        "apptainer run --nv docker://ghcr.io/huggingface/text-generation-inference:3 --model-id org/m --port 80",
        "apptainer pull docker://vllm/vllm-openai:v0.9.0 && apptainer build vllm.sif vllm.def",
        "apptainer instance stop vllm-openai_v0.9.0.sif",
        "apptainer exec vllm-openai_v0.9.0.sif vllm bench serve --model org/m",
        "apptainer exec vllm-openai_v0.9.0.sif python3 -c 'import vllm'",
        "apptainer run",
        "apptainer",
    ],
)
def test_what_serves_nothing_of_vllm(command: str) -> None:
    assert units(f"#!/bin/bash\n{command}\n") == []


def test_a_container_sees_the_variables_and_gpus_of_its_job() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\nexport HF_HOME=/hf\nexport APPTAINERENV_VLLM_USE_V1=1\n"
        "apptainer run --nv --env A=1,B=x,y docker://vllm/vllm-openai:v0.9.0 --model org/m\n"
    )
    (unit,) = units(text, "job.sbatch")
    assert environment(unit) == {"HF_HOME": "/hf", "VLLM_USE_V1": "1", "A": "1", "B": "x,y"}
    assert [request.count for request in unit.gpu_requests] == [4]
    assert unit.shared_memory is not None
    assert unit.shared_memory.bytes is None
    (unit,) = units(text.replace("--nv", "--nv --cleanenv"), "job.sbatch")
    assert environment(unit) == {"VLLM_USE_V1": "1", "A": "1", "B": "x,y"}


DEFINITION = """\
Bootstrap: docker
From: vllm/vllm-openai:v0.10.1

%environment
    export HF_HUB_OFFLINE=1
    export PORT=9000

%post
    vllm serve org/never

%runscript
    exec vllm serve org/m --port ${PORT} "$@"

%startscript
    exec vllm serve org/n --port ${PORT}
"""


@pytest.mark.parametrize("path", ["vllm.def", "Singularity", "images/Singularity.vllm", "vllm.def.j2"])
def test_a_definition_file(path: str) -> None:
    found = units(DEFINITION, path)
    assert [shown(unit) for unit in found] == [
        ("org/m --port 9000 ?$@", "vllm/vllm-openai:v0.10.1"),
        ("org/n --port 9000", "vllm/vllm-openai:v0.10.1"),
    ]
    assert environment(found[0]) == {"HF_HUB_OFFLINE": "1", "PORT": "9000"}


@pytest.mark.parametrize(
    "text",
    [
        'Bootstrap: docker\nFrom: vllm/vllm-openai:v0.10.1\n\n%runscript\n    exec vllm serve "$@"\n',
        "Bootstrap: docker\nFrom: vllm/vllm-openai:v0.10.1\n\n%post\n  vllm serve org/m\n%test\n  vllm serve org/m\n",
        "EXPORTS\n  vllm serve org/m\n%runscript\nvllm serve org/m\n",
    ],
)
def test_definition_files_that_start_nothing_of_their_own(text: str) -> None:
    assert units(text, "vllm.def") == []


def test_the_same_server_in_two_sections_is_one() -> None:
    text = "Bootstrap: localimage\nFrom: vllm.sif\n%runscript\nvllm serve org/m\n%startscript\nvllm serve org/m\n"
    assert [shown(unit) for unit in units(text, "vllm.def")] == [("org/m", None)]
