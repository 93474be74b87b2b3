"""Compose files as serve units."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest

from kvgate.manifests.compose_files import together
from kvgate.manifests.quantities import size_bytes
from kvgate.manifests.read import read_tree
from kvgate.manifests.tree import Tree
from kvgate.manifests.unit import ServeUnit
from kvgate.source.text import SourceFile


def units(text: str, root: Path | None = None, *others: tuple[str, str]) -> list[ServeUnit]:
    files = [SourceFile("compose.yaml", dedent(text)), *(SourceFile(path, dedent(body)) for path, body in others)]
    return list(read_tree(files, root).units)


def unit(text: str, root: Path | None = None, *others: tuple[str, str]) -> ServeUnit:
    (found,) = units(text, root, *others)
    return found


def words(found: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in found.words)


def service(body: str) -> str:
    return "services:\n  vllm:\n" + "".join(f"    {line}\n" for line in dedent(body).splitlines())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("image: vllm/vllm-openai\ncommand: --model m --port 80", "--model m --port 80"),
        ("image: vllm/vllm-openai\ncommand: [--model, m, --port, 80]", "--model m --port 80"),
        ("image: vllm/vllm-openai\ncommand: >\n  --model m\n  --x '{\"a\": 1}'", '--model m --x {"a": 1}'),
        ("image: x\nentrypoint: [vllm, serve, m]", "m"),
        ("image: x\nentrypoint: vllm serve\ncommand: m --a", "m --a"),
        ("image: vllm/vllm-openai\nentrypoint: []\ncommand: [vllm, serve, m]", "m"),
        ("image: x\nentrypoint: [python3, -m, vllm.entrypoints.openai.api_server]\ncommand: [--model, m]", "--model m"),
        ("image: x\ncommand: bash -c \"pip install y && vllm serve m --a 1\"", "m --a 1"),
        ("image: x\nentrypoint: [/bin/sh, -c]\nenvironment: {M: m}\ncommand:\n  - |\n    vllm serve $$M \\\n     --a 1",
         "m --a 1"),
        ("image: x\nentrypoint: [/wrap.sh]\ncommand: python -m vllm.entrypoints.openai.api_server --model m",
         "--model m"),
        ("build: ./vllm\ncommand: [--model, m, --tensor-parallel-size, '2']", "--model m --tensor-parallel-size 2"),
        ("image: my-vllm:1\ncommand: --model m ${EXTRA:-} --z", "--model m --z"),
        ("image: vllm/vllm-openai\ncommand: --model ${MODEL} --len ${LEN:-4096} ${EXTRA}",
         "--model ?${MODEL} --len 4096 ?${EXTRA}"),
    ],
)  # fmt: skip
def test_commands(body: str, expected: str) -> None:
    found = unit(service(body))
    assert words(found) == expected
    assert (found.id, found.kind, found.span.line, found.span.text) == ("compose.yaml/vllm", "compose", 2, "vllm")


@pytest.mark.parametrize(
    "body",
    [
        "image: nginx\ncommand: nginx -g 'daemon off;'",
        "image: vllm/vllm-openai\ncommand: [vllm, bench, serve]",
        "image: prom/prometheus\ncommand: ['--config.file=/x', '--web.enable-lifecycle']",
        "image: aibrix/gateway-plugins\ncommand: [--standalone]",
        "image: lmsysorg/sglang\ncommand: python3 -m sglang.launch_server --model-path m --tp 2",
        "image: vllm/vllm-openai\nentrypoint: []\ncommand: [uvicorn, 'proxy:app', --port, '80']\ngpus: all",
    ],
)
def test_what_serves_nothing(body: str) -> None:
    assert units(service(body).replace("  vllm:", "  other:") + "# vllm\n") == []


def test_every_word_of_a_folded_command_has_its_place() -> None:
    text = service("image: vllm/vllm-openai\ncommand: >\n  --model ${MODEL:-org/m}\n  --max-model-len 4096")
    found = unit(text)
    at = {word.value: word.span for word in found.words}
    assert (at["org/m"].line, at["org/m"].text) == (5, "org/m")
    assert (at["4096"].line, at["4096"].column, at["4096"].text) == (6, 23, "4096")


def test_variables_from_env_files(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MODEL=org/m  # comment\nQUOTED=\"a b\"\nexport LEN='8192'\nPASSED=9\nREF=${LEN}0\n")
    (tmp_path / "more.env").write_text("SEED=7\n")
    found = unit(
        service(
            """\
            image: vllm/vllm-openai:${TAG-v0.10.0}
            command: --model $MODEL --max-model-len ${LEN:-1} --name "${QUOTED}" --ref ${REF}
            env_file: [more.env]
            environment: [PASSED, GIVEN=x, UNKNOWN]
            """
        ),
        tmp_path,
    )
    assert words(found) == "--model org/m --max-model-len 8192 --name a b --ref 81920"
    assert [word.value for word in found.words][5] == "a b"
    assert found.words[1].span.text == "$MODEL"
    environment = {
        variable.name: variable.value.value if variable.value is not None else None for variable in found.environment
    }
    assert environment == {"SEED": "7", "PASSED": "9", "GIVEN": "x", "UNKNOWN": None}
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"


def test_an_unset_image_keeps_its_reason() -> None:
    found = unit(service("image: ${VLLM_IMAGE}\ncommand: --model m"))
    assert found.image is not None
    assert found.image.unresolved[0].reason == "VLLM_IMAGE is set in no file here"


def test_anchors_and_merges() -> None:
    text = """\
        x-gpu: &gpu
          deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
        x-base: &base
          image: vllm/vllm-openai:v0.10.0
          shm_size: 16gb
          environment: {A: base, B: base}
        services:
          one:
            <<: [*base, *gpu]
            environment: {A: own}
            command: --model m
        """
    found = unit(text)
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.10.0"
    assert [request.count for request in found.gpu_requests] == [2]
    # `<<` is shallow: the service's own environment replaces the base's
    assert [variable.name for variable in found.environment] == ["A"]
    assert found.shared_memory is not None
    assert (found.shared_memory.how, found.shared_memory.bytes) == ("shm_size", 16 * 2**30)
    assert found.span.line == 8


def test_extends_in_the_same_and_in_another_file() -> None:
    text = """\
        services:
          base:
            image: vllm/vllm-openai:v0.10.0
            environment: {A: base, B: base}
            command: --model base
          child:
            extends: base
            environment: {A: own}
          far:
            extends: {file: common/c.yaml, service: far}
            command: --model far
          lost:
            extends: {file: absent.yaml, service: x}
            command: vllm serve lost
          loop:
            extends: loop
            command: vllm serve loop
        """
    other = ("common/c.yaml", "services:\n  far:\n    image: vllm/vllm-openai:v0.9.0\n    gpus: 4\n")
    found = {item.name: item for item in units(text, None, other)}
    assert words(found["child"]) == "--model base"
    assert {v.name: v.value.value for v in found["child"].environment if v.value is not None} == {
        "A": "own",
        "B": "base",
    }
    assert found["far"].image is not None
    assert found["far"].image.value == "vllm/vllm-openai:v0.9.0"
    assert [request.count for request in found["far"].gpu_requests] == [4]
    assert words(found["lost"]) == "lost"
    assert words(found["loop"]) == "loop"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("gpus: all", [None]),
        ("gpus: 2", [2]),
        ("gpus: [{driver: nvidia, count: 3}]", [3]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: all}]}}}", [None]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 2}]}}}", [2]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], device_ids: ['0', '3']}]}}}", [2]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], device_ids: ['${G}']}]}}}", [None]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: '${G:-4}'}]}}}", [4]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}", [None]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [tpm], count: 1}]}}}", []),
        ("devices: [/dev/kfd, /dev/dri]", [None]),
        ("runtime: nvidia", [None]),
        ("shm_size: 1g", []),
    ],
)
def test_devices(body: str, expected: list[int | None]) -> None:
    found = unit(service(f"image: vllm/vllm-openai\ncommand: --model m\n{body}"))
    assert [request.count for request in found.gpu_requests] == expected
    assert all((request.count is None) == (request.reason is not None) for request in found.gpu_requests)


def test_replicas_annotations_and_ipc() -> None:
    found = unit(
        service(
            """\
            image: vllm/vllm-openai
            command: --model m
            ipc: host
            deploy: {replicas: 3, placement: {constraints: [node.labels.gpu == l4]}}
            labels: ["kvgate.dev/peak-concurrency=20", "other=x"]
            """
        )
    )
    assert found.replicas == 3
    assert {key: value.value for key, value in found.annotations.items()} == {"kvgate.dev/peak-concurrency": "20"}
    assert found.shared_memory is not None
    assert found.shared_memory.how == "ipc: host"
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("gpu", ("l4",))]
    scaled = unit(service("image: vllm/vllm-openai\ncommand: --model m\nscale: ${N:-2}\nlabels: {kvgate.dev/gpu: L4}"))
    assert scaled.replicas == 2
    assert scaled.annotations["kvgate.dev/gpu"].value == "L4"


def test_a_mounted_script_is_read(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("#!/bin/sh\nexec vllm serve $MODEL_ID --seed 3\n")
    body = """\
        image: vllm/vllm-openai
        volumes: [./start.sh:/app/start.sh:ro]
        entrypoint: [/bin/sh, /app/start.sh]
        environment: {MODEL_ID: org/m}
        gpus: 1
        """
    found = unit(service(body), tmp_path)
    assert words(found) == "org/m --seed 3"
    assert found.words[1].span.path == "start.sh"
    assert found.path == "compose.yaml"
    absent = unit(service(body))
    assert absent.storage_model is not None
    assert absent.storage_model.value == "org/m"


def test_a_launcher_of_ones_own() -> None:
    text = service(
        """\
        build: .
        command: python /app/vllm_launcher.py
        environment: [VLLM_MODEL=org/m]
        gpus: all
        """
    )
    found = unit(text)
    assert found.storage_model is not None
    assert found.storage_model.value == "org/m"
    assert not found.words[0].resolved
    assert units(text.replace("gpus: all", "ports: []")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16gb", 2**34), ("64m", 2**26), ("2kb", 2048), ("1024", 1024), ("0.5g", 2**29), ("8GiB", 2**33), ("big", None)],
)
def test_sizes(text: str, expected: int | None) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "services: [vllm]\n",
        "services: {vllm: [a]}\n",
        "services: {vllm: {image: [x], command: {a: b}, deploy: 1, environment: 3, volumes: {}, gpus: {}}}\n",
        "services: {vllm: {image: vllm/vllm-openai, command: [[a], {b: c}], extends: [x], labels: x}}\n",
        "services: {vllm: {image: vllm/vllm-openai, entrypoint: [], command: --model m, env_file: {a: b}}}\n",
    ],
)
def test_shapes_that_no_schema_allows(text: str) -> None:
    for item in units(text):
        assert item.span.line == 1


# -- several files -----------------------------------------------------------------------------------------------------


def project(**files: str) -> list[ServeUnit]:
    """Units of files by name (``_`` for a dot, ``__`` for a slash)."""
    sources = [SourceFile(name.replace("__", "/").replace("_", "."), dedent(text)) for name, text in files.items()]
    return list(read_tree(sources).units)


def told(found: list[ServeUnit]) -> list[tuple[str, str]]:
    return [(item.path, words(item)) for item in found]


BASE = """\
    services:
      vllm:
        image: vllm/vllm-openai:v0.10.0
        command: --model org/m --max-model-len 8192
        environment: {A: base, B: base}
    """


def test_an_override_is_part_of_the_file_it_stands_beside() -> None:
    override = """\
        services:
          vllm:
            command: --model org/m --max-model-len 4096
            environment: {A: over}
            deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 2}]}}}
          other:
            image: vllm/vllm-openai
            command: --model org/other
        """
    found = project(compose_yaml=BASE, compose_override_yaml=override)
    assert told(found) == [
        ("compose.override.yaml", "--model org/other"),
        ("compose.yaml", "--model org/m --max-model-len 4096"),
    ] or told(found) == [
        ("compose.yaml", "--model org/m --max-model-len 4096"),
        ("compose.override.yaml", "--model org/other"),
    ]
    merged = next(item for item in found if item.path == "compose.yaml")
    assert {item.name: item.value.value for item in merged.environment if item.value} == {"A": "over", "B": "base"}
    assert [request.count for request in merged.gpu_requests] == [2]
    assert merged.image is not None
    assert merged.image.value == "vllm/vllm-openai:v0.10.0"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("up_sh", "docker compose -f base.yml -f prod.yml up -d\n"),
        ("up_sh", "docker compose -p x --file base.yml --file=prod.yml up -d\n"),
        ("Makefile", "up:\n\tdocker-compose \\\n\t  -f base.yml \\\n\t  -f prod.yml up\n"),
        ("_env", "COMPOSE_FILE=base.yml:prod.yml\n"),
    ],
)
def test_a_list_of_files_makes_a_server_of_the_one_on_top(path: str, text: str) -> None:
    top = "services: {vllm: {command: --model org/m --max-num-seqs 64}}\n"
    found = project(**{path: text}, base_yml=BASE, prod_yml=top)
    assert told(found) == [
        ("base.yml", "--model org/m --max-model-len 8192"),
        ("prod.yml", "--model org/m --max-num-seqs 64"),
    ]
    assert found[1].image is not None
    assert found[1].image.value == "vllm/vllm-openai:v0.10.0"


def test_an_included_file_is_read_once_with_the_variables_of_both() -> None:
    inner = "services: {vllm: {image: vllm/vllm-openai, command: --model $MODEL --max-model-len $LEN}}\n"
    files = {
        "compose_yaml": "include: [llm/compose.yaml]\nservices: {web: {image: nginx}}\n",
        "llm__compose_yaml": inner,
        "llm___env": "MODEL=org/inner\nLEN=10\n",
        "_env": "MODEL=org/outer\n",
    }
    assert told(project(**files)) == [("llm/compose.yaml", "--model org/outer --max-model-len 10")]


def test_a_named_file_brings_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "llm.yaml").write_text("services: {vllm: {image: vllm/vllm-openai, command: --model org/m}}\n")
    main = SourceFile("compose.yaml", "include:\n  - path: llm.yaml\n  - gone.yaml\n  - oci://registry/x:1\n")
    found = read_tree([main], tmp_path, named=frozenset({"compose.yaml"}))
    assert told(list(found.units)) == [("llm.yaml", "--model org/m")]
    assert [(item.reason, item.span.line) for item in found.unread] == [
        ("gone.yaml, which is included, is not among the files read", 2),
        ("oci://registry/x:1, which is included, is not among the files read", 2),
    ]


def test_services_that_others_only_extend_are_no_servers() -> None:
    base = """\
        services:
          engine:
            image: vllm/vllm-openai:v0.10.0
            command: --model org/base
            ipc: host
        """
    use = """\
        services:
          chat:
            extends: {file: common.yml, service: engine}
            command: --model org/chat
        """
    (found,) = project(common_yml=base, compose_yaml=use)
    assert (found.path, words(found)) == ("compose.yaml", "--model org/chat")
    assert found.shared_memory is not None
    # a file that Compose finds by itself is started as it stands
    both = project(compose_yaml=base, chat__compose_yaml=use.replace("common.yml", "../compose.yaml"))
    assert told(both) == [("compose.yaml", "--model org/base"), ("chat/compose.yaml", "--model org/chat")]


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("vllm:\n    build: {context: ., dockerfile: docker/Dockerfile}", True),
        ("llm:\n    build: {context: ., dockerfile: docker/Dockerfile.vllm}", True),
        ("llm:\n    build: ./vllm/", True),
        # that one starts something else
        ("vllm:\n    build: ./vllm\n    command: uvicorn app:app", False),
        # nothing says that it serves
        ("llm:\n    build: ./llm", False),
        ("vllm-client:\n    build: ./vllm", False),
        ("vllm:\n    build: ./vllm-benchmark", False),
    ],
)
def test_what_is_built_of_files_that_are_not_at_hand(service: str, *, expected: bool) -> None:
    gpus = "    gpus: all\n"
    model = "    environment: {VLLM_MODEL: org/m, VLLM_MAX_MODEL_LEN: 4096}\n"
    text = f"services:\n  {service}\n"
    found = [(words(unit), unit.storage_model) for unit in units(text + model + gpus)]
    name = text.split()[1].rstrip(":")
    assert [(line, model and model.value) for line, model in found] == (
        [(f"?{name} --max-model-len 4096", "org/m")] if expected else []
    )
    # nor does one without a model, without GPUs, or that asks another server
    elsewhere = model.replace("{", "{OPENAI_BASE_URL: 'http://gateway:8000/v1', ")
    for other in (gpus, model, elsewhere + gpus):
        assert not units(text + other)


def test_what_is_built_beside_runs_what_its_dockerfile_says() -> None:
    dockerfile = """\
        FROM vllm/vllm-openai:v0.11.0
        ENV MODEL=org/m
        COPY start.sh /start.sh
        ENTRYPOINT ["/start.sh"]
        """
    files = {
        "compose_yaml": "services: {llm: {build: ./server, gpus: all}}\n",
        "server__Dockerfile": dockerfile,
        "server__start_sh": 'exec vllm serve "$MODEL" --max-model-len 4096\n',
    }
    (found,) = project(**files)
    assert (found.path, words(found)) == ("compose.yaml", "org/m --max-model-len 4096")
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.11.0"
    # its own command replaces the image's, and the image is started by nobody else
    files["compose_yaml"] = "services: {llm: {build: server, entrypoint: [vllm, serve], command: [org/other]}}\n"
    assert told(project(**files)) == [("compose.yaml", "org/other")]
    files["compose_yaml"] = "services: {llm: {build: server, command: [--x]}, db: {image: postgres}}\n"
    assert told(project(**files)) == [("compose.yaml", "org/m --max-model-len 4096")]


def test_what_a_dockerfile_installs_is_the_release_of_what_is_built() -> None:
    dockerfile = "FROM python:3.12\nRUN pip install \\\n  vllm==0.11.0 \\\n  ray>=2.9\nCMD vllm serve org/m\n"
    files = {"compose_yaml": "services: {llm: {build: ., gpus: all}}\n", "Dockerfile": dockerfile}
    (found,) = project(**files)
    assert found.requirement is not None
    assert (found.requirement.value, found.requirement.span.line) == ("vllm==0.11.0", 3)


def test_a_config_is_a_file_inside_the_container() -> None:
    text = """\
        services:
          vllm:
            image: vllm/vllm-openai
            command: --model org/m --config /etc/vllm.yaml
            configs: [{source: engine, target: /etc/vllm.yaml}]
        configs:
          engine: {content: "max-model-len: 4096\\n"}
        """
    assert "--max-model-len 4096" in words(unit(text))


@pytest.mark.parametrize(
    "text",
    [
        "docker compose" + " -a" * 100_000 + " -f",
        "compose -a " * 100_000 + " -f",
        "compose" + " " * 300_000 + "-f",
        "\n" * 300_000 + "COMPOSE_FILE",
    ],
    ids=["options", "commands", "blanks", "lines"],
)
def test_hostile_commands_cost_little(text: str) -> None:
    begin = time.process_time()
    units(service("image: vllm/vllm-openai"), None, ("run.sh", text))
    assert time.process_time() - begin < 5


def test_files_that_include_many_files_cost_little() -> None:
    paths = [f"{number}.yaml" for number in range(2_000)]
    text = f"include:\n  - path: [{', '.join(paths)}]\n" + "  - same.yaml\n" * 2_000
    found = together(Tree([SourceFile("all.yaml", text)]))
    assert sum(len(below) for below in found.under.values()) < 100
    assert found.includers["same.yaml"] == ("all.yaml",)


def test_an_entry_script_that_is_mounted_over_the_image() -> None:
    text = """\
        services:
          llm:
            image: vllm/vllm-openai:v0.10.0
            entrypoint: ["/usr/local/bin/llm-entrypoint"]
            environment: {VLLM_MODEL: org/m}
            deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
        """
    (unit,) = units(text)
    assert unit.words[0].unresolved[0].reason == "the script is not among the files read"
    assert units(text.replace("llm-entrypoint", "nvidia-smi")) == []


_BASE = """\
    services:
      vllm:
        image: vllm/vllm-openai:v0.11.0
        command: [--model, m, --max-model-len, "8192"]
        environment: {VLLM_USE_V1: "0", HF_HOME: /cache}
        volumes: ["./conf:/conf"]
        deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
    """


@pytest.mark.parametrize(
    ("override", "arguments", "environment", "gpus"),
    [
        ("command: !override [--model, n]", "--model n", ["HF_HOME", "VLLM_USE_V1"], [2]),
        ("command: !reset null", "", ["HF_HOME", "VLLM_USE_V1"], [2]),
        ("command: !reset", "", ["HF_HOME", "VLLM_USE_V1"], [2]),
        ("environment: {A: b}", "--model m --max-model-len 8192", ["A", "HF_HOME", "VLLM_USE_V1"], [2]),
        ("environment: !override {A: b}", "--model m --max-model-len 8192", ["A"], [2]),
        ("environment: !override  # no more\n  A: b", "--model m --max-model-len 8192", ["A"], [2]),
        ("environment: !reset {A: b}", "--model m --max-model-len 8192", [], [2]),
        ("deploy: !reset {}", "--model m --max-model-len 8192", ["HF_HOME", "VLLM_USE_V1"], []),
        ("deploy: !override {replicas: 2}", "--model m --max-model-len 8192", ["HF_HOME", "VLLM_USE_V1"], []),
        ("deploy: {resources: !reset null}", "--model m --max-model-len 8192", ["HF_HOME", "VLLM_USE_V1"], []),
    ],
)
def test_what_is_not_merged_with_the_file_below(
    override: str, arguments: str, environment: list[str], gpus: list[int]
) -> None:
    body = "runtime: runc\n" + override
    found = units(_BASE, None, ("compose.override.yaml", service(body)))
    assert [words(unit) for unit in found] == [arguments]  # the image alone serves with its defaults
    assert sorted(item.name for item in found[0].environment) == environment
    assert [request.count for request in found[0].gpu_requests] == gpus


def test_a_service_that_the_file_above_takes_away() -> None:
    assert units(_BASE, None, ("compose.override.yaml", "services:\n  vllm: !reset null\n")) == []


def test_mounts_of_all_files_count(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "serve.yaml").write_text("max-num-seqs: 8\n")
    override = service('command: [--model, m, --config, /conf/serve.yaml]\nvolumes: ["./cache:/cache"]')
    (found,) = units(_BASE, tmp_path, ("compose.override.yaml", override))
    assert words(found) == "--max-num-seqs 8 --model m --config /conf/serve.yaml"


_BUILT = """\
    build: {context: ., args: {BASE: "vllm/vllm-openai:${TAG:-v0.11.0}"}}
    command: [m, --max-model-len, "8192"]
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
    """


@pytest.mark.parametrize("dockerfile", ["ARG BASE=python:3.12\nFROM ${BASE}\n", "ARG BASE\nFROM $BASE AS last\n", None])
def test_build_arguments_say_what_an_image_begins_with(tmp_path: Path, dockerfile: str | None) -> None:
    if dockerfile is not None:
        (tmp_path / "Dockerfile").write_text(dockerfile)
    found = unit(service(_BUILT), tmp_path)
    assert words(found) == "m --max-model-len 8192"
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.11.0"


def test_build_arguments_that_are_no_vllm_image_name_none(tmp_path: Path) -> None:
    body = dedent(_BUILT).replace("vllm/vllm-openai:${TAG:-v0.11.0}", "python:3.12")
    assert unit(service(body), tmp_path).image is None


_GENAI = """\
    image: registry.example/ocr:1
    command: paddleocr genai_server --model_name Page-1B --port 80 --backend {backend} --backend_config {config}
    volumes: ["./engine.yaml:/home/ocr/conf/engine.yaml:ro"]
    {more}
    """


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ("/home/ocr/conf/engine.yaml", ""),
        ("engine.yaml", ""),
        ("conf/engine.yaml", ""),
        ("engine.yaml", "working_dir: /home/ocr/conf"),
        ("../conf/engine.yaml", "working_dir: /home/ocr/bin"),
    ],
)
def test_a_server_around_vllm_reads_its_file(tmp_path: Path, config: str, more: str) -> None:
    (tmp_path / "engine.yaml").write_text("max_model_len: 4096\nenforce_eager: true\n")
    found = unit(service(dedent(_GENAI).format(backend="vllm", config=config, more=more)), tmp_path)
    assert words(found).startswith("--max-model-len 4096 --enforce-eager ?genai_server --served-model-name Page-1B")
    # what it adds itself is not known, nor is the model more than by its name
    assert [item.reason for word in found.words for item in word.unresolved] == [
        "what the launcher adds to its arguments is not in the files read"
    ]
    assert found.storage_model is not None
    assert found.storage_model.value == "Page-1B"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("paddleocr genai_server --model_name m", None),  # its own engine
        ("paddleocr genai_server --model_name m --backend sglang", None),
        ("paddleocr genai_server --model_name m --backend ${ENGINE}", None),
        ("paddlex_genai_server --model_name m --model_dir /m --backend=vllm", "--served-model-name m --model /m"),
        ("mineru-openai-server --engine vllm --port 80", "--port 80"),
        ("mineru-openai-server --port 80", None),
        ("mineru-openai-server --engine lmdeploy", None),
        ("mineru-vllm-server --gpu-memory-utilization 0.4", "--gpu-memory-utilization 0.4"),
        ("python -m huggingfaceserver --backend huggingface --model_id m", None),
        ("python -m huggingfaceserver --backend=huggingface --model_id m", None),
    ],
)
def test_servers_that_know_several_engines(command: str, expected: str | None) -> None:
    found = units(service(f"image: registry.example/ocr:1\ncommand: {command}"))
    told = [" ".join(word.value for word in item.words[1:]) for item in found]
    assert told == ([] if expected is None else [expected])


_CLIENT = """\
    image: app-vllm:1
    command: {command}
    environment: {{VLLM_MODEL: org/m, {name}: "{value}"}}
    gpus: all
    """


@pytest.mark.parametrize("command", ["[python, main.py]", "[./start.sh]", ""])
@pytest.mark.parametrize(
    ("name", "value", "serves"),
    [
        ("VLLM_BASE_URL", "http://vllm:8000/v1", False),
        ("VLLM_BASE_URL", "${BASE:-http://vllm:8000}", False),
        ("OPENAI_API_BASE", "https://models.example:8443/v1/", False),
        ("HF_ENDPOINT", "https://mirror.example", True),
        ("VLLM_BASE_URL", "http://localhost:8000/v1", True),
        ("VLLM_BASE_URL", "http://0.0.0.0:8000/v1", True),
        ("VLLM_HOST_IP", "10.0.0.1", True),
    ],
)
def test_what_is_told_where_a_server_answers_is_its_client(command: str, name: str, value: str, serves: bool) -> None:
    text = service(dedent(_CLIENT).format(command=command, name=name, value=value))
    reading = read_tree([SourceFile("compose.yaml", text)])
    assert len(reading.units) == serves
    if not serves:
        assert reading.unread == ()


def test_a_server_that_is_told_of_another_one_starts_all_the_same() -> None:
    body = dedent(_CLIENT).format(command="vllm serve org/m", name="VLLM_BASE_URL", value="http://other:8000/v1")
    assert words(unit(service(body))) == "org/m"


def test_an_image_is_called_after_its_variable() -> None:
    body = "image: ${VLLM_IMAGE}\ndevices: [nvidia.com/gpu=all]\n"
    (found,) = units(service(body).replace("  vllm:", "  llm:"))
    assert found.words[0].unresolved[0].reason == "the arguments are inside the image"
    assert units(service(body.replace("VLLM", "PROXY")).replace("  vllm:", "  llm:")) == []


def test_a_tag_alone_may_say_what_another_program_is_built_with() -> None:
    body = "image: registry.example/{}\ndevices: [nvidia.com/gpu=all]\n"
    assert units(service(body.format("speech-app:1.0-vllm"))) == []
    assert words(unit(service(body.format("speech-app:1.0-vllm") + "command: [--model, org/m]\n"))) == "--model org/m"
    assert len(units(service(body.format("speech-vllm:1.0")))) == 1


def test_an_array_of_a_script_is_not_interpolated() -> None:
    body = """\
        image: vllm/vllm-openai
        environment: {MODEL: "${MODEL:-org/m}"}
        entrypoint:
          - /bin/bash
          - -c
          - |
            words=(serve "${MODEL:-org/m}" --seed 1)
            if [[ -n "${LENGTH:-4096}" ]]; then words+=(--max-model-len "${LENGTH:-4096}"); fi
            exec vllm "${words[@]}"
        """
    assert words(unit(service(body))) == "org/m --seed 1 --max-model-len 4096"


def test_a_build_argument_without_a_value_leaves_the_kind_of_image(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG KIND=vllm/vllm-openai\nARG TAG=v0.9.0\nFROM ${KIND}:${TAG}\n")
    body = "build: {context: ., args: {KIND: $KIND, TAG: $TAG}}\ncommand: ${ARGUMENTS}  # vllm\n"
    found = unit(service(body).replace("  vllm:", "  llm:"), tmp_path)
    assert words(found) == "?${ARGUMENTS}"
    assert found.image is not None
    assert [item.reason for item in found.image.unresolved] == [
        "KIND is set in no file here",
        "TAG is set in no file here",
    ]


def test_paths_count_from_the_folder_of_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "Dockerfile").write_text("FROM vllm/vllm-openai:v0.11.0\nCOPY a.sh /a.sh\nCMD [/a.sh]\n")
    (tmp_path / "server" / "a.sh").write_text('vllm serve "$MODEL" --config /engine.yaml\n')
    (tmp_path / "server" / "a.env").write_text("MODEL=org/m\n")
    (tmp_path / "engine.yaml").write_text("max-num-seqs: 8\n")
    body = "build: ./server\nentrypoint: [/a.sh]\nenv_file: server/a.env\nvolumes: ['./engine.yaml:/engine.yaml']\n"
    files = [SourceFile("services/llm/compose.llm.yml", service(body))]
    (found,) = read_tree(files, tmp_path).units
    assert words(found) == "org/m --max-num-seqs 8 --config /engine.yaml"


def test_what_is_mounted_is_no_server_of_its_own() -> None:
    body = """\
        image: vllm/vllm-openai
        volumes: [./start.sh:/start.sh, ./engine.yaml:/engine.yaml]
        entrypoint: [/bin/bash, -c]
        command: ["tr -d '\\\\r' < /start.sh > /tmp/start.sh && bash /tmp/start.sh"]
        """
    files = {
        "compose_yaml": service(body),
        "start_sh": "vllm serve org/m --config /engine.yaml\n",
        "engine_yaml": "max-model-len: 4096\ngpu-memory-utilization: 0.8\n",
    }
    expected = "org/m --max-model-len 4096 --gpu-memory-utilization 0.8 --config /engine.yaml"
    assert told(project(**files)) == [("compose.yaml", expected)]
    # what is mounted and not run is one
    files["compose_yaml"] = service(dedent(body).partition("entrypoint")[0] + "command: [--model, org/m]\n")
    paths = [path for path, _ in told(project(**files))]
    assert paths == ["compose.yaml", "start.sh", "engine.yaml"]


def test_quotes_inside_a_quoted_variable(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        """LINE="--model org/m --override-generation-config='{\\"top_k\\": 1}'"\n"""
        """PLAIN=--a\\"b\nSINGLE='{\\"c\\": 2}'\nLAST = "d\\\\e"\n"""
    )
    found = unit(service("image: vllm/vllm-openai\ncommand: $LINE\nenvironment: [PLAIN, SINGLE, LAST]\n"), tmp_path)
    assert words(found) == '--model org/m --override-generation-config={"top_k": 1}'
    assert [item.value.value for item in found.environment if item.value] == ['--a\\"b', '{\\"c\\": 2}', "d\\e"]


_PROGRAM = """\
    import os, subprocess

    MODEL = os.environ.get("MODEL", "org/default")
    os.environ["VLLM_LOGGING_LEVEL"] = "DEBUG"
    LENGTH = os.getenv("LENGTH", "4096")
    subprocess.run(["vllm", "serve", MODEL, "--max-model-len", LENGTH, "--seed", os.environ["SEED"]])
    """
_RUNS_IT = """\
    build: .
    command: {command}
    environment: {{MODEL: org/m, SEED: ${{SEED}}}}
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 2, capabilities: [gpu]}}]}}}}}}
    """


@pytest.mark.parametrize(
    "command",
    [
        "python app/serve.py --port 80",
        "[python3, -u, /work/app/serve.py]",
        "[python3.12, -m, app.serve]",
        "[uvicorn, 'app.serve:app', --host, 0.0.0.0]",
        "python -m uvicorn --host 0.0.0.0 app.serve:app",
        "bash -c 'pip list && exec python app/serve.py'",
        "[./app/serve.py]",
        "",
    ],
)
def test_a_program_of_the_tree_starts_the_server_of_the_container_that_runs_it(command: str) -> None:
    files = {
        "compose_yaml": service(dedent(_RUNS_IT).format(command=command)),
        "Dockerfile": """\
            FROM vllm/vllm-openai:v0.11.0
            WORKDIR /work
            COPY app app
            ENTRYPOINT []
            CMD python app/serve.py
            """,
        "app__serve_py": _PROGRAM,
    }
    (found,) = project(**files)
    assert (found.path, words(found)) == ("compose.yaml", 'org/m --max-model-len 4096 --seed ?os.environ["SEED"]')
    assert [request.count for request in found.gpu_requests] == [2]
    assert {item.name: item.value.value for item in found.environment if item.value is not None} == {
        "MODEL": "org/m",
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.11.0"


def test_a_program_of_the_tree_that_starts_nothing_is_no_server() -> None:
    files = {
        "compose_yaml": service(dedent(_RUNS_IT).format(command="python app/serve.py")),
        "Dockerfile": "FROM python:3.12\nRUN pip install vllm\nCOPY app /app\nWORKDIR /\n",
        "app__serve_py": "import httpx\nhttpx.post('http://vllm/v1')\n",
    }
    assert project(**files) == []


def test_a_dockerfile_that_runs_a_program_is_its_server() -> None:
    dockerfile = 'FROM vllm/vllm-openai:v0.11.0\nENV MODEL=org/m SEED=3\nCOPY serve.py .\nCMD ["python3", "serve.py"]\n'
    found = project(Dockerfile=dockerfile, serve_py=_PROGRAM)
    assert told(found) == [("Dockerfile", "org/m --max-model-len 4096 --seed 3")]


_INLINE = """\
    services:
      llm:
        build:
          context: server
          args: {{TAG: v0.11.0}}
          dockerfile_inline: |
            ARG TAG
            FROM vllm/vllm-openai:$${{TAG}} AS base
            ENV MODEL=org/m \\
              # how long
              LENGTH=4096
            RUN python3 - <<EOF
            from other import image
            EOF
            COPY start.sh /start.sh
            {last}
        gpus: all
    """


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ('ENTRYPOINT ["sh", "-c", "vllm serve $$MODEL --max-model-len $$LENGTH"]', "org/m --max-model-len 4096"),
        ("CMD [--model, org/n]", "--model org/n"),
        ('entrypoint ["/start.sh"]', "org/m --seed 3"),
        ("# nothing else", ""),
    ],
)
def test_a_dockerfile_that_stands_in_the_file(last: str, expected: str) -> None:
    files = {"compose_yaml": dedent(_INLINE).format(last=last), "server__start_sh": "vllm serve $MODEL --seed 3\n"}
    found = project(**files)[0]
    assert words(found) == expected
    assert found.image is not None
    assert found.image.value == "vllm/vllm-openai:v0.11.0"
    assert {piece.span.path for word in found.words for piece in word.text.pieces} <= {
        "compose.yaml",
        "server/start.sh",
    }


_TOLD = """\
    services:
      vllm:
        image: vllm/vllm-openai
        command: --model $MODEL --max-model-len ${LENGTH:-1024} --seed ${SEED}
    """


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # what is exported, in whichever way
        ("export MODEL=org/m LENGTH=4096\ndocker compose up -d\n", "org/m 4096 ?${SEED}"),
        ("set -a\n. ./more.env\nset +a\ndocker-compose up\n", "org/more 1024 7"),
        ("source more.env\nexport MODEL\nexport LENGTH=${LENGTH:-8192}\ndocker compose up\n", "org/more 8192 ?${SEED}"),
        ("MODEL=org/m sudo -E docker compose -f $HERE/compose.yaml up\n", "org/m 1024 ?${SEED}"),
        ("docker compose --env-file more.env -p x up\n", "org/more 1024 7"),
        ("cd .. && MODEL=org/m docker compose -f deploy/compose.yaml up", "org/m 1024 ?${SEED}"),
        ("(cd $ROOT/deploy && LENGTH=2 docker compose up)", "?$MODEL 2 ?${SEED}"),
        # what nobody can know
        ("export MODEL=$(pick)\ndocker compose up\n", "?$MODEL 1024 ?${SEED}"),
        ("if [ $BIG ]; then export MODEL=a; else export MODEL=b; fi\ndocker compose up\n", "?$MODEL 1024 ?${SEED}"),
        ("export MODEL=a\ndocker compose up\nexport MODEL=b\ndocker compose up\n", "?$MODEL 1024 ?${SEED}"),
        ("LENGTH=5 docker compose up\ndocker compose up\n", "?$MODEL 1024 ?${SEED}"),
        # what is not for it
        ("MODEL=org/m\ndocker compose up\n", "?$MODEL 1024 ?${SEED}"),
        ("export MODEL=org/m\ndocker compose down\n", "?$MODEL 1024 ?${SEED}"),
        ("export MODEL=org/m\ndocker compose -f other.yaml up\n", "?$MODEL 1024 ?${SEED}"),
        ("docker compose up\nexport MODEL=org/m\n", "?$MODEL 1024 ?${SEED}"),
        ("export MODEL=org/m\necho docker compose up\n", "?$MODEL 1024 ?${SEED}"),
    ],
)
def test_variables_of_the_commands_that_start_it(script: str, expected: str) -> None:
    files = {"deploy__compose_yaml": _TOLD, "deploy__up_sh": script, "deploy__more_env": "MODEL=org/more\nSEED=7\n"}
    (found,) = project(**files)
    model, length, seed = expected.split()
    assert words(found) == f"--model {model} --max-model-len {length} --seed {seed}"


@pytest.mark.parametrize(
    "script",
    [
        'cd "$(dirname "$0")/../deploy"\nexport MODEL=org/m\ndocker compose up -d\n',
        "export MODEL=org/m\npushd x && popd; cd $ROOT/deploy && docker compose up\n",
        "export MODEL=org/m\ndocker compose -f ${ROOT}/deploy/compose.yaml up\n",
        'export MODEL="${MODEL:-org/m}"\n(cd "${ROOT:-.}/deploy"; podman compose up)\n',
        "cd ..\nset -o allexport; MODEL=org/m; set +o allexport\ndocker-compose -f deploy/compose.yaml up\n",
    ],
)
def test_a_command_runs_compose_in_another_folder(script: str) -> None:
    found = project(deploy__compose_yaml=_TOLD, bin__up_sh=script)
    assert [words(item).split()[1] for item in found] == ["org/m"]


def test_variables_of_several_commands() -> None:
    files = {
        "deploy__compose_yaml": _TOLD,
        "Makefile": "up:\n\tdocker compose --env-file deploy/a.env -f deploy/compose.yaml up -d\n",
        "deploy__up_sh": "#!/bin/sh\nexport MODEL=org/m LENGTH=5 SEED=1\ndocker compose up\n",
        "deploy__a_env": "MODEL=org/m\nSEED=2\n",
        "deploy__.env": "SEED=3\n",
    }
    (found,) = project(**files)
    assert words(found) == "--model org/m --max-model-len 1024 --seed 3"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"deploy/gpu/set_env.sh": "export MODEL=org/m SEED=1\nLENGTH=9\n"}, "org/m 1024 ?${SEED}"),
        ({"deploy/set_env.sh": 'export MODEL="${MODEL:-org/m}"\nexport SEED=7\n'}, "org/m 1024 7"),
        ({"deploy/env.sh": "source more.sh\nexport MODEL\n", "deploy/more.sh": "MODEL=org/m\n"}, "org/m 1024 ?${SEED}"),
        ({"deploy/gpu/.envrc": "export MODEL=$(hostname)\n"}, "?$MODEL 1024 ?${SEED}"),
        ({"other/set_env.sh": "export MODEL=org/m\n"}, "?$MODEL 1024 ?${SEED}"),
        ({"deploy/gpu/set_env.sh": "export MODEL=org/a\n", "deploy/gpu/.env": "MODEL=org/m"}, "org/m 1024 ?${SEED}"),
    ],
)
def test_a_script_that_is_sourced_by_hand(files: dict[str, str], expected: str) -> None:
    sources = [SourceFile(path, text) for path, text in files.items()]
    (found,) = read_tree([*sources, SourceFile("deploy/gpu/compose.yaml", dedent(_TOLD))]).units
    model, length, seed = expected.split()
    assert words(found) == f"--model {model} --max-model-len {length} --seed {seed}"


def test_the_script_that_is_sourced_goes_by_the_name_of_the_file() -> None:
    sources = [
        SourceFile("compose.yaml", dedent(_TOLD)),
        SourceFile("compose_large.yaml", dedent(_TOLD)),
        SourceFile("set_env.sh", "export MODEL=org/small\n"),
        SourceFile("set_env_large.sh", "export MODEL=org/large\n"),
    ]
    found = read_tree(sources).units
    assert [words(item).split()[1] for item in found] == ["org/small", "org/large"]
