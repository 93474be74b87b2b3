"""Terraform, OpenTofu and Nomad."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.manifests.read import read_tree
from kvgate.manifests.unit import Reading, ServeUnit
from kvgate.source.text import SourceFile


def reading(*files: tuple[str, str], root: Path | None = None) -> Reading:
    return read_tree([SourceFile(path, dedent(text)) for path, text in files], root)


def units(text: str, *others: tuple[str, str], root: Path | None = None) -> list[ServeUnit]:
    return list(reading(("main.tf", text), *others, root=root).units)


def words(unit: ServeUnit) -> str:
    return " ".join(("?" if word.unresolved else "") + word.value for word in unit.words)


def test_a_resource_of_the_kubernetes_provider_is_the_object_that_it_creates() -> None:
    (found,) = units(
        """\
        resource "kubernetes_deployment_v1" "chat" {
          metadata {
            name      = "chat"
            namespace = "llm"
          }
          spec {
            replicas = 2
            template {
              spec {
                node_selector = { "nvidia.com/gpu.product" = "NVIDIA-L4" }
                container {
                  name  = "vllm"
                  image = "vllm/vllm-openai:v0.8.5"
                  args  = ["--model", "org/m", "--max-model-len", "8192"]
                  env {
                    name  = "VLLM_USE_V1"
                    value = "0"
                  }
                  env {
                    name = "HF_TOKEN"
                    value_from {
                      secret_key_ref {
                        name = "hf"
                        key  = "token"
                      }
                    }
                  }
                  resources { limits = { "nvidia.com/gpu" = 1 } }
                  volume_mount {
                    name       = "shm"
                    mount_path = "/dev/shm"
                  }
                }
                volume {
                  name = "shm"
                  empty_dir {
                    medium     = "Memory"
                    size_limit = "8Gi"
                  }
                }
              }
            }
          }
        }
        """
    )
    assert (found.id, found.kind, found.span.line) == ("Deployment/llm/chat/vllm", "Deployment", 11)
    assert words(found) == "--model org/m --max-model-len 8192"
    assert found.words[3].span.text == '"8192"' or found.words[3].span.text == "8192"
    assert found.words[3].span.line == 14
    assert found.replicas == 2
    assert [request.count for request in found.gpu_requests] == [1]
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("nvidia.com/gpu.product", ("NVIDIA-L4",))]
    assert {item.name: item.value.value for item in found.environment if item.value} == {"VLLM_USE_V1": "0"}
    assert [item.name for item in found.environment] == ["VLLM_USE_V1", "HF_TOKEN"]
    assert found.shared_memory is not None
    assert found.shared_memory.bytes == 8 * 2**30


VARIABLES = """\
    variable "model" {
      type    = string
      default = "org/m"
    }
    variable "token" { type = string }
    variable "task" { default = null }
    variable "eager" {
      type    = bool
      default = false
    }
    """


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('["--model", var.model]', "--model org/m"),
        ('["--model=${var.model}", "--port", 80]', "--model=org/m --port 80"),
        ('["--model", var.token]', "--model ?{{ var.token }}"),
        ('["--model", "x-${var.token}"]', "--model ?x-{{ var.token }}"),
        ('concat(["--model", var.model], local.more)', "--model org/m --max-model-len 4096"),
        ('["--model", local.models["a"].id]', "--model org/a"),
        ('["--model", local.models.a.id]', "--model org/a"),
        ('["--model", join("/", ["org", "j"])]', "--model org/j"),
        ('["--model", var.model == "" ? "a" : "b"]', "--model b"),
        ('["--model", (var.model != "org/m") ? "a" : var.model]', "--model org/m"),
        ('["--model", var.token == "" ? "a" : "b"]', '--model ?{{ var.token == "" ? "a" : "b" }}'),
        ('["--model", length(var.model) > 0 ? "a" : "b"]', '--model ?{{ length(var.model) > 0 ? "a" : "b" }}'),
        ('concat(["--model", "m"], !var.eager && local.length > 4000 ? ["--seed", "1"] : [])', "--model m --seed 1"),
        (
            '["--model", var.eager || var.token == "a" ? "a" : "b"]',
            '--model ?{{ var.eager || var.token == "a" ? "a" : "b" }}',
        ),
        ('["--model", local.big ? "a" : "b"]', "--model b"),
        ('["--model", local.models[local.chosen].id]', "--model org/a"),
        ('["--model", local.more[0]]', "--model --max-model-len"),
        ('["--model", local.more[7]]', "--model ?{{ local.more[7] }}"),
        ('compact(["--model", "m", var.eager ? "--enforce-eager" : "", var.task == null ? null : "x"])', "--model m"),
        ('concat(["--model", "m"], !var.eager ? ["--enforce-eager"] : [])', "--model m --enforce-eager"),
        ('["--model", coalesce(var.task, "", var.model)]', "--model org/m"),
        ('["--model", "m", "-O", jsonencode({ level = 3, x = [true] })]', '--model m -O {"level": 3, "x": [true]}'),
        ('["--model", "m", "-O", jsonencode({ level = var.token })]', '--model m -O ?{"level": "{{ var.token }}"}'),
        ('["--model", local.loop]', "--model ?{{ local.loop }}"),
        (r'["--model", "a\"b\u0041%%{c}"]', '--model a"bA%{c}'),
    ],
)
def test_expressions(arguments: str, expected: str) -> None:
    text = f"""\
        locals {{
          more   = ["--max-model-len", tostring(local.length)]
          length = 4096
          loop   = local.loop
          big    = local.length >= 8192
          chosen = "a"
          models = {{ a = {{ id = "org/a" }} }}
        }}
        resource "google_cloud_run_v2_service" "chat" {{
          template {{
            containers {{
              image = "vllm/vllm-openai:v0.8.5"
              args  = {arguments}
            }}
          }}
        }}
        """
    (found,) = units(text, ("variables.tf", VARIABLES))
    assert words(found) == expected


def test_variables_files_win_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "variables.tf").write_text(dedent(VARIABLES))
    (tmp_path / "terraform.tfvars").write_text('model = "org/prod"\n')
    (found,) = units(
        'resource "docker_container" "d" {\n  image = "vllm/vllm-openai"\n  command = ["--model", var.model]\n'
        '  env = ["HF_HOME=/x"]\n}\n',
        root=tmp_path,
    )
    assert (found.kind, found.id, words(found)) == ("docker_container", "main.tf/d", "--model org/prod")
    assert {item.name: item.value.value for item in found.environment if item.value} == {"HF_HOME": "/x"}


def test_manifests_as_objects_and_as_text() -> None:
    pod = 'spec = { containers = [{ name = "c", image = "vllm/vllm-openai:v0.8.5", args = ["--model", "org/m"] }] }'
    found = units(
        f"""\
        resource "kubernetes_manifest" "o" {{
          manifest = {{ apiVersion = "v1", kind = "Pod", metadata = {{ name = "o" }}, {pod} }}
        }}
        resource "kubectl_manifest" "t" {{
          yaml_body = <<-YAML
            apiVersion: v1
            kind: Pod
            metadata: {{name: t}}
            spec:
              containers:
                - name: c
                  image: vllm/vllm-openai:v0.8.5
                  args: ["--model", "${{var.model}}"]
          YAML
        }}
        """,
        ("variables.tf", VARIABLES),
    )
    assert [(unit.id, unit.span.line, words(unit)) for unit in found] == [
        ("Pod/default/o/c", 2, "--model org/m"),
        ("Pod/default/t/c", 11, "--model org/m"),
    ]


def test_the_values_of_a_helm_release() -> None:
    (found,) = units(
        """\
        resource "helm_release" "stack" {
          name   = "llm"
          values = [yamlencode({
            servingEngineSpec = { modelSpec = [{
              name = "q", repository = "vllm/vllm-openai", tag = "v0.8.5", modelURL = "org/m"
              replicaCount = 1, requestGPU = 2, vllmConfig = { maxModelLen = 4096 }
            }] }
          })]
        }
        """
    )
    assert found.kind == "helm_release"
    assert words(found) == "--model org/m --max-model-len 4096 --no-enable-prefix-caching"
    assert [request.count for request in found.gpu_requests] == [2]


def test_settings_of_a_helm_release_win_over_its_values() -> None:
    (found,) = units(
        """\
        resource "helm_release" "stack" {
          chart  = "vllm-stack"
          values = [file("${path.module}/values.yaml")]
          set {
            name  = "vllm.model.maxModelLen"
            value = "4096"
          }
        }
        """,
        (
            "values.yaml",
            "vllm: {model: {name: org/m, maxModelLen: 1024}, tensorParallelSize: 1}\n",
        ),
    )
    assert "--model org/m" in words(found)
    assert "--max-model-len 4096" in words(found)
    assert "1024" not in words(found)


def test_values_of_a_template_that_a_data_source_renders() -> None:
    (found,) = units(
        """\
        data "template_file" "values" {
          count    = var.on ? 1 : 0
          template = file("${path.module}/config/values.tpl")
          vars     = { length = 8192 }
        }
        resource "helm_release" "vllm" {
          name      = "x-${random_id.a.hex}"
          namespace = kubernetes_namespace.a.metadata[0].name
          chart     = "vllm-stack"
          values    = [data.template_file.values[0].rendered]
        }
        """,
        (
            "config/values.tpl",
            "servingEngineSpec:\n  modelSpec:\n  - {name: a, modelURL: org/m, vllmConfig: {maxModelLen: ${length}}}\n",
        ),
    )
    assert (found.id, found.path) == ("helm_release/default/vllm/modelSpec/[0]", "main.tf")
    assert words(found) == "--model org/m --max-model-len 8192 --no-enable-prefix-caching"


def test_settings_of_a_helm_release_name_items_of_lists_and_keys_with_dots() -> None:
    """As the provider's version 3 writes them, a list of objects; a variable may stand in one."""
    (found,) = units(
        """\
        variable "model" { default = "org/m" }
        resource "helm_release" "stack" {
          chart  = "vllm-stack"
          values = [yamlencode({ servingEngineSpec = { modelSpec = [{ vllmConfig = { maxModelLen = 1024 } }] } })]
          set = [
            { name = "servingEngineSpec.modelSpec[0].name", value = "chat" },
            { name = "servingEngineSpec.modelSpec[0].modelURL", value = var.model },
            { name = "servingEngineSpec.modelSpec[0].requestGPU", value = 2 },
            { name = "servingEngineSpec.modelSpec[0].vllmConfig.maxModelLen", value = 4096 },
            { name = "servingEngineSpec.modelSpec[0].nodeSelector.nvidia\\\\.com/gpu\\\\.product", value = "L4" },
            { name = "servingEngineSpec.modelSpec[0].env{", value = "no path" },
          ]
        }
        """
    )
    assert words(found) == "--model org/m --max-model-len 4096 --no-enable-prefix-caching"
    assert [request.count for request in found.gpu_requests] == [2]
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("nvidia.com/gpu.product", ("L4",))]


@pytest.mark.parametrize("chart", ["./charts/llm", "${path.module}/charts/llm"])
def test_a_helm_release_of_a_chart_of_the_tree(chart: str) -> None:
    template = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm}
        spec:
          template:
            spec: {containers: [{name: vllm, image: "{{ .Values.image }}", args: [--model, "{{ .Values.model }}"]}]}
        """
    found = units(
        f'resource "helm_release" "vllm" {{\n  chart  = "{chart}"\n  values = ["model: org/big"]\n}}\n',
        ("charts/llm/Chart.yaml", "name: llm\n"),
        ("charts/llm/values.yaml", "image: vllm/vllm-openai:v0.10.0\nmodel: org/m\n"),
        ("charts/llm/templates/deployment.yaml", template),
    )
    assert [(unit.id, unit.path, words(unit)) for unit in found] == [
        ("Deployment/default/llm/vllm@vllm", "main.tf", "--model org/big"),
        ("Deployment/default/llm/vllm", "charts/llm/templates/deployment.yaml", "--model org/m"),
    ]
    assert found[0].image is not None
    assert found[0].image.value == "vllm/vllm-openai:v0.10.0"


DEPLOYMENT = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: "%s"}
    spec:
      template:
        spec:
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.9.1
              args: [--model, "%s"]
    """


@pytest.mark.parametrize(
    ("name", "text", "expression"),
    [
        (
            "v.yaml.tpl",
            DEPLOYMENT % ("a", "${model}"),
            'templatefile("${path.module}/v.yaml.tpl", { model = "org/m" })',
        ),
        ("v.yaml", DEPLOYMENT % ("a", "org/m"), 'yamldecode(file("v.yaml"))'),
    ],
)
def test_a_manifest_that_terraform_hands_on_is_one_server(name: str, text: str, expression: str) -> None:
    (found,) = units(f'resource "kubectl_manifest" "vllm" {{\n  yaml_body = {expression}\n}}\n', (name, text))
    assert (found.id, found.path, words(found)) == ("Deployment/default/a/vllm", "main.tf", "--model org/m")
    assert (found.span.path, found.span.line) == ("main.tf", 1)


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ('{ a = { model = "org/a" }, b = { model = "org/b" } }', [("a", "org/a"), ("b", "org/b")]),
        ("local.all", [("c", "org/c")]),
        ("var.all", [("main.tf", "?{{ each.value.model }}")]),
    ],
)
def test_a_resource_for_each_of_several(over: str, expected: list[tuple[str, str]]) -> None:
    found = units(
        f"""\
        locals {{ all = {{ c = {{ model = "org/c" }} }} }}
        resource "kubernetes_deployment_v1" "v" {{
          for_each = {over}
          metadata {{ name = each.key }}
          spec {{
            template {{
              spec {{
                container {{
                  name  = "vllm"
                  image = "vllm/vllm-openai:v0.9.1"
                  args  = ["--model", each.value.model]
                }}
              }}
            }}
          }}
        }}
        """
    )
    assert [(unit.id, words(unit)) for unit in found] == [
        (f"Deployment/default/{name}/vllm", f"--model {model}") for name, model in expected
    ]


MODULE = """\
    variable "model" {}
    variable "length" { default = 1024 }
    variable "dtype" { default = "auto" }
    resource "kubernetes_deployment" "vllm" {
      metadata { name = "llm" }
      spec {
        template {
          spec {
            container {
              name  = "vllm"
              image = "vllm/vllm-openai:v0.9.1"
              args  = ["--model", var.model, "--max-model-len", var.length, "--dtype", var.dtype]
            }
          }
        }
      }
    }
    """
CALL = """\
    locals {{ model = "org/m" }}
    module "{0}" {{
      source = "./modules/llm"
      model  = local.model
      length = {1}
    }}
    """


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([CALL.format("one", 8192)], "--model org/m --max-model-len 8192 --dtype auto"),
        # each makes one of its own
        ([CALL.format("one", 8192), CALL.format("two", 4096)],
         "--model ?{{ var.model }} --max-model-len ?{{ var.length }} --dtype auto"),
        ([CALL.format("one", 8192).replace("modules/llm", "modules/other")],
         "--model ?{{ var.model }} --max-model-len 1024 --dtype auto"),
        ([], "--model ?{{ var.model }} --max-model-len 1024 --dtype auto"),
    ],
)  # fmt: skip
def test_a_module_is_told_what_its_call_says(calls: list[str], expected: str) -> None:
    files = [SourceFile(f"call{number}.tf", dedent(text)) for number, text in enumerate(calls)]
    (found,) = read_tree([SourceFile("modules/llm/main.tf", dedent(MODULE)), *files]).units
    assert (found.id, words(found)) == ("Deployment/default/llm/vllm", expected)


def test_modules_that_call_each_other_end() -> None:
    text = 'module "x" {\n  source = "../%s"\n  model = var.model\n}\n'
    files = {"a/main.tf": dedent(MODULE) + text % "b", "b/main.tf": 'variable "model" {}\n' + text % "a"}
    (found,) = read_tree([SourceFile(path, body) for path, body in files.items()]).units
    assert words(found).startswith("--model ?{{ var.model }}")


SCRIPT = """\
    locals {
      script = <<-EOT
        docker run --gpus all vllm/vllm-openai:v0.8.5 --model org/m
      EOT
    }
    """


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("", [("main.tf/locals.script", [])]),
        (
            'resource "aws_instance" "a" {\n  instance_type = "g5.xlarge"\n  user_data = base64encode(local.script)\n}',
            [("main.tf/aws_instance.user_data", [("instance-type", ("g5.xlarge",))])],
        ),
        (
            'resource "x_vm" "a" {\n  size = 100\n  machine_type = var.type\n  user_data = local.script\n}\n',
            [("main.tf/x_vm.user_data", [])],
        ),
        # turned on by a variable, or counted out
        (
            'variable "on" { default = false }\n'
            'resource "x_vm" "a" {\n  count = var.on ? 1 : 0\n  user_data = local.script\n}\n',
            [("main.tf/x_vm.user_data", [])],
        ),
        ('resource "x_vm" "a" {\n  count = 0\n  user_data = local.script\n}\n', [("main.tf/locals.script", [])]),
    ],
)
def test_a_script_of_a_local_is_that_of_the_machine_that_uses_it(
    resource: str, expected: list[tuple[str, list[tuple[str, tuple[str, ...]]]]]
) -> None:
    found = units(dedent(SCRIPT) + resource)
    assert [(unit.id, [(hint.key, hint.values) for hint in unit.node_hints]) for unit in found] == expected
    assert [words(unit) for unit in found] == ["--model org/m"]


@pytest.mark.parametrize(("quote", "length"), [("", "8192"), ("'", "${LEN}")])
def test_a_service_that_a_machines_first_script_writes(quote: str, length: str) -> None:
    (found,) = units(
        f"""\
        variable "model" {{ default = "org/m" }}
        resource "aws_launch_template" "gpu" {{
          instance_type = "g6.xlarge"
          user_data = base64encode(<<-EOT
            #!/bin/bash
            LEN=8192
            cat > /etc/systemd/system/vllm.service <<{quote}EOF{quote}
            [Service]
            ExecStart=/opt/venv/bin/vllm serve ${{var.model}} --max-model-len $${{LEN}}
            EOF
            systemctl enable --now vllm
          EOT
          )
        }}
        """
    )
    assert (found.kind, found.path, found.span.line) == ("systemd", "main.tf", 9)
    assert [word.value for word in found.words] == ["org/m", "--max-model-len", length]
    assert [(hint.key, hint.values) for hint in found.node_hints] == [("instance-type", ("g6.xlarge",))]


def test_scripts_that_machines_start_with(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("#!/bin/bash\nvllm serve ${model} --port $PORT\n")
    found = units(
        """\
        resource "aws_instance" "a" {
          user_data = base64encode(<<-EOF
            #!/bin/bash
            LEN=4096
            docker run --gpus all vllm/vllm-openai:v0.8.5 --model ${var.model} --max-model-len $LEN --port $${P:-80}
          EOF
          )
        }
        resource "google_compute_instance" "b" {
          metadata = { startup-script = templatefile("${path.module}/start.sh", { model = var.model }) }
        }
        resource "null_resource" "c" {
          provisioner "remote-exec" { inline = ["cd /x", "nohup vllm serve ${var.model} &"] }
        }
        """,
        ("variables.tf", VARIABLES),
        root=tmp_path,
    )
    assert [(unit.id, words(unit)) for unit in found] == [
        ("main.tf/aws_instance.user_data", "--model org/m --max-model-len 4096 --port 80"),
        ("main.tf/google_compute_instance.metadata.startup-script", "org/m --port ?$PORT"),
        ("main.tf/null_resource.provisioner.inline", "org/m"),
    ]


def test_a_task_of_nomad() -> None:
    text = """\
        job "llm" {
          group "g" {
            task "chat" {
              driver = "docker"
              env { HF_HOME = "/x" }
              config {
                image = "vllm/vllm-openai:v0.8.5"
                args  = ["--model", "org/m", "--port", "${NOMAD_PORT_http}"]
              }
              resources {
                device "nvidia/gpu" { count = 2 }
              }
            }
            task "bare" {
              driver = "raw_exec"
              config {
                command = "/opt/venv/bin/vllm"
                args    = ["serve", "org/n"]
              }
            }
          }
        }
        """
    found = list(reading(("llm.nomad", text)).units)
    assert [(unit.kind, unit.id, words(unit)) for unit in found][:1] == [
        ("nomad", "llm.nomad/chat", "--model org/m --port ?{{ NOMAD_PORT_http }}")
    ]
    assert [request.count for request in found[0].gpu_requests] == [2]
    assert {item.name: item.value.value for item in found[0].environment if item.value} == {"HF_HOME": "/x"}


@pytest.mark.parametrize(
    "told",
    [
        'entrypoint = ["/bin/bash", "/local/run.sh"]',
        'command = "bash"\n args = ["-x", "local/run.sh"]',
        'entrypoint = ["/local/run.sh"]',
    ],
)
def test_a_task_of_nomad_that_runs_a_script_of_its_templates(told: str) -> None:
    text = f"""\
        job "llm" {{
          group "g" {{
            task "chat" {{
              driver = "docker"
              config {{
                image = "vllm/vllm-openai:v0.8.5"
                {told}
              }}
              template {{
                destination = "secrets/token.env"
                data        = "TOKEN=x"
              }}
              template {{
                destination = "local/run.sh"
                data        = <<EOF
        #!/bin/bash
        exec vllm serve org/m --max-model-len 4096 --api-key {{{{ key "token" }}}}
        EOF
              }}
            }}
          }}
        }}
        """
    (found,) = reading(("llm.nomad", text)).units
    assert (found.kind, found.id) == ("nomad", "llm.nomad/chat")
    assert words(found) == 'org/m --max-model-len 4096 --api-key ?{{ key "token" }}'
    assert reading(("llm.nomad", text.replace('local/run.sh"\n', 'local/other.sh"\n'))).units == ()


def test_a_container_of_ecs() -> None:
    (found,) = units(
        """\
        resource "aws_ecs_task_definition" "t" {
          family = "llm"
          container_definitions = jsonencode([{
            name = "c", image = "vllm/vllm-openai:v0.8.5", command = ["--model", "org/m"]
            resourceRequirements = [{ type = "GPU", value = "4" }]
          }])
        }
        """
    )
    assert (found.kind, found.id, words(found)) == ("ecs-task", "main.tf/llm/c", "--model org/m")
    assert [request.count for request in found.gpu_requests] == [4]


@pytest.mark.parametrize(
    "text",
    [
        'resource "kubernetes_service" "vllm" { spec { port { port = 80 } } }\n',
        'module "vllm" { source = "./vllm" }\n',
        'output "x" { value = "vllm serve org/m" }\n',
        'variable "command" { default = "vllm serve org/m" }\n',
        'resource "helm_release" "vllm" { chart = "vllm" }\n',
    ],
)
def test_what_starts_nothing(text: str) -> None:
    assert units(text) == []


def test_a_file_that_is_no_hcl_is_said() -> None:
    found = reading(("main.tf", 'resource "x" "y" {\n  args = ["vllm", "serve"\n'))
    assert found.units == ()
    assert [(item.span.path, item.reason) for item in found.unread] == [("main.tf", "not HCL that can be parsed")]


_PIECES = st.sampled_from(
    [
        'resource "a" "b" {', "}", "container {", 'image = "vllm/vllm-openai"', "args = [", "]", '"--model", ', "var.x",
        "${", "<<-E\n", "\nE\n", "\n", " = ", '"', "{", "locals {", "x = local.x", "vllm", "é", "$${", 'file("../x")',
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=30))
def test_any_text_is_read(pieces: list[str]) -> None:
    reading(("main.tf", "# vllm\n" + " ".join(pieces)))
