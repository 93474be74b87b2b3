"""The traps of YAML, each with a document that falls into it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.source.text import SourceFile, Text
from kvgate.source.yaml_tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    is_go_template,
    parse_embedded,
    parse_yaml,
    scalar_bool,
    scalar_int,
    walk,
)


def read(text: str) -> Node:
    stream = parse_yaml(SourceFile("f.yaml", text))
    assert stream.problems == []
    assert len(stream.documents) == 1
    return stream.documents[0]


def scalar(text: str, *keys: str) -> Scalar:
    node: Node | None = read(text)
    for key in keys:
        assert isinstance(node, Mapping)
        node = node.get(key)
    assert isinstance(node, Scalar)
    return node


def written(text: Text) -> list[tuple[str, bool]]:
    """What stands in the file for each stretch of a text."""
    return [(piece.span.text, piece.exact) for piece in text.pieces]


# -- positions -------------------------------------------------------------------------------------------------------


def test_an_alias_keeps_its_use_site_and_its_target() -> None:
    document = read("base: &b 32768\nuse: *b\n")
    assert isinstance(document, Mapping)
    use = document.get("use")
    assert isinstance(use, Scalar)
    assert use.value == "32768"
    assert (use.span.line, use.span.text) == (1, "32768")
    assert use.alias is not None
    assert (use.alias.line, use.alias.text) == (2, "*b")


def test_literal_block_text_starts_below_its_indicator() -> None:
    node = scalar("a: |\n  one\n    two\n\n  three\nb: 1\n", "a")
    assert node.value == "one\n  two\n\nthree\n"
    assert node.span.line == 1
    assert node.span.text == "|\n  one\n    two\n\n  three"
    at = node.value.index("three")
    assert node.text.slice(at, at + 5).span.line == 5
    assert node.text.slice(at, at + 5).span.column == 3
    assert node.text.slice(at, at + 5).span.text == "three"
    assert node.text.slice(4, 9).span.text == "  two"


def test_folded_block_maps_across_its_folds() -> None:
    node = scalar("a: >-\n  vllm serve\n  --port 8000\n\n  end\n", "a")
    assert node.value == "vllm serve --port 8000\nend"
    at = node.value.index("--port")
    assert node.text.slice(at, at + 6).span.line == 3
    assert node.text.slice(at, at + 6).span.text == "--port"


def test_block_scalar_may_end_in_a_comment_of_its_own() -> None:
    node = scalar("a: |\n  run\n  # not yaml's\n\n# yaml's\nb: 1\n", "a")
    assert node.value == "run\n# not yaml's\n"
    assert node.text.slice(4, 9).span.text == "# not"


def test_block_scalar_with_an_explicit_indent() -> None:
    node = scalar("a:\n  b: |2\n      x\n    y\n", "a", "b")
    assert node.value == "  x\ny\n"
    assert node.text.slice(2, 3).span.text == "x"
    assert node.text.slice(2, 3).span.column == 7
    assert node.text.slice(4, 5).span.text == "y"


def test_block_collections_end_with_their_last_node() -> None:
    document = read("a:\n  b: 1\n  c: 2   # note\n\n# about d\nd: 3\n")
    assert isinstance(document, Mapping)
    inner = document.get("a")
    assert inner is not None
    assert inner.span.text == "b: 1\n  c: 2"
    assert inner.span.end_line == 3


def test_flow_collections_end_with_their_bracket() -> None:
    document = read("a: [ 1, {b: 2} ]  # x\n")
    assert isinstance(document, Mapping)
    inner = document.get("a")
    assert isinstance(inner, Sequence)
    assert inner.span.text == "[ 1, {b: 2} ]"
    assert inner.items[1].span.text == "{b: 2}"


def test_double_quotes_map_each_escape() -> None:
    node = scalar('a: "x\\ty\\u00e9 \\\n   z"\n', "a")
    assert node.value == "x\tyé z"
    assert written(node.text) == [
        ("x", True),
        ("\\t", False),
        ("y", True),
        ("\\u00e9", False),
        (" ", True),
        ("z", True),
    ]


def test_single_quotes_map_a_doubled_quote() -> None:
    node = scalar("a: 'it''s'\n", "a")
    assert node.value == "it's"
    assert written(node.text) == [("it", True), ("''", False), ("s", True)]


def test_plain_scalar_over_several_lines() -> None:
    node = scalar("a: one\n   two\n\n   three\n", "a")
    assert node.value == "one two\nthree"
    assert node.text.slice(4, 7).span.text == "two"
    assert node.text.slice(8, 13).span.text == "three"


def test_columns_count_code_points() -> None:
    node = scalar('a: {é: "😀", k: v}\n', "a", "k")
    assert (node.span.line, node.span.column) == (1, 16)
    assert node.span.text == "v"


def test_byte_order_mark_moves_nothing() -> None:
    file = SourceFile.from_bytes("f", "\ufeffa: 1\nb: 2\n".encode())
    document = parse_yaml(file).documents[0]
    assert isinstance(document, Mapping)
    node = document.get("b")
    assert node is not None
    assert (node.span.line, node.span.column, node.span.text) == (2, 4, "2")


def test_crlf_counts_once() -> None:
    node = scalar("a: |\r\n  x\r\n  y\r\nb: 1\r\n", "a")
    assert node.value == "x\ny\n"
    assert node.text.slice(2, 3).span.line == 3


def test_anchor_and_tag_are_not_part_of_a_node() -> None:
    assert scalar("a: &x !!str 12\n", "a").span.text == "12"
    document = read("a: &x\n  b: 1\n")
    assert isinstance(document, Mapping)
    inner = document.get("a")
    assert inner is not None
    assert inner.span.text == "b: 1"


# -- meaning ---------------------------------------------------------------------------------------------------------


def test_duplicate_keys_are_told_and_the_last_wins() -> None:
    stream = parse_yaml(SourceFile("f", "a: 1\nb: 2\na: 3\n"))
    assert [(problem.kind, problem.span.line) for problem in stream.problems] == [("duplicate-key", 3)]
    assert "line 1" in stream.problems[0].message
    document = stream.documents[0]
    assert isinstance(document, Mapping)
    assert [entry.value.span.text for entry in document.items()] == ["3", "2"]


def test_merges_are_no_duplicates_and_the_first_base_wins() -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  <<: [*x, *y]\n  c: 3\nw:\n  <<: *x\n  <<: *y\n"
    document = read(text)
    assert isinstance(document, Mapping)
    z = document.get("z")
    assert isinstance(z, Mapping)
    assert {entry.key.value: entry.value.span.text for entry in z.items()} == {"a": "1", "b": "1", "c": "3"}
    assert z.get("b") is not None
    assert z.get("missing") is None
    assert z.has_any({"b", "missing"})  # through a merge
    x = document.get("x")
    assert isinstance(x, Mapping)
    assert (x.has_any({"b", "missing"}), x.has_any({"missing"})) == (True, False)


def test_merge_bombs_end() -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n}\n  <<: [*a{n - 1}, *a{n - 1}]\n  k{n}: 1" for n in range(1, 60)]
    document = read("\n".join(lines) + "\n")
    assert isinstance(document, Mapping)
    top = document.get("a59")
    assert isinstance(top, Mapping)
    assert top.get("absent") is None
    assert len(top.items()) == 60


def test_alias_bombs_end() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    document = read("\n".join(lines) + "\n")
    assert sum(1 for _ in walk(document)) <= 200_000
    embedded = parse_embedded(scalar("a: |\n" + "".join(f"  {line}\n" for line in lines), "a").text)
    assert len(embedded.documents) == 1


def test_alias_inside_its_own_anchor_is_refused() -> None:
    stream = parse_yaml(SourceFile("f", "a: &a\n  b: *a\n"))
    assert [problem.kind for problem in stream.problems] == ["syntax"]
    assert stream.problems[0].span.line == 2


def test_scalars_stay_text_until_their_type_is_known() -> None:
    document = read("a: 12:30:45\nb: 1_000\nc: on\nd: 0o17\ne: '1'\nf: 1e5\n")
    assert isinstance(document, Mapping)
    values = {entry.key.value: entry.value for entry in document.entries}
    assert {key: node.value for key, node in values.items() if isinstance(node, Scalar)} == {
        "a": "12:30:45",
        "b": "1_000",
        "c": "on",
        "d": "0o17",
        "e": "1",
        "f": "1e5",
    }
    assert scalar_bool(values["c"]) is True
    assert scalar_int(values["b"]) is None
    assert scalar_int(values["e"]) == 1


def test_a_helm_template_is_known_before_it_is_parsed() -> None:
    assert is_go_template("a: {{ .Values.x }}\n")
    assert is_go_template("{{- if .Values.x }}\na: 1\n{{- end }}\n")
    assert is_go_template('a: {{ include "x" . }}\n')
    assert not is_go_template('image: "{{ .Values.image }}"\n')
    assert not is_go_template("arg: --model={{ .Values.model }}\n")
    assert not is_go_template("# replicas: {{ .Values.replicas }}\na: 1\n")
    assert not is_go_template("template: |\n  {{ range .Alerts }}x{{ end }}\n")
    assert not is_go_template("a: '{{HF_TOKEN}}'\nb: {c: {d: 1}}\n")
    assert not is_go_template("args: ['--served-model-name={{.Name}}']\n")


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_a_placeholder_is_read_as_a_value() -> None:
    node = scalar("stringData:\n  token: {{HF_TOKEN}}\n", "stringData", "token")
    assert node.value == "{{HF_TOKEN}}"
    assert node.span.text == "{{HF_TOKEN}}"


def test_a_variable_in_a_flow_mapping_is_read_as_a_value() -> None:
    stream = parse_yaml(SourceFile("f", "a: { b: ${X}, c: [x-${Y:-1}] }\nd: ${Z}\n"))
    assert stream.problems == []
    (root,) = stream.documents
    assert isinstance(root, Mapping)
    flow, last = root.get("a"), root.get("d")
    assert isinstance(flow, Mapping)
    assert isinstance(last, Scalar)
    inner = flow.get("b")
    assert isinstance(inner, Scalar)
    assert (inner.value, inner.span.text, last.value) == ("${X}", "${X}", "${Z}")
    listed = flow.get("c")
    assert isinstance(listed, Sequence)
    assert [item.span.text for item in listed.items] == ["x-${Y:-1}"]


def test_a_broken_document_leaves_its_neighbours() -> None:
    stream = parse_yaml(SourceFile("f", "a: 1\n---\nb: [1, 2\nc: 3\n---\nd: 4\n"))
    keys = [entry.key.value for node in stream.documents if isinstance(node, Mapping) for entry in node.entries]
    assert "a" in keys
    assert "d" in keys
    assert [problem.kind for problem in stream.problems] == ["syntax"]
    assert stream.problems[0].span.line in (3, 4)


def test_a_tab_costs_one_finding_not_the_document() -> None:
    stream = parse_yaml(SourceFile("f", "spec:\n  type: LoadBalancer\n\tports:\n  name: x\n"))
    assert [problem.kind for problem in stream.problems] == ["syntax"]
    assert stream.problems[0].span.line == 3
    assert len(stream.documents) == 1


def test_tab_after_a_colon_is_taken_as_libyaml_takes_it() -> None:
    assert scalar("a:\tb\n", "a").value == "b"


@pytest.mark.parametrize("depth", [1_500, 20_000])
def test_deep_nesting_is_a_problem_with_a_line(depth: int) -> None:
    stream = parse_yaml(SourceFile("f", "a: 1\n---\n" + "[" * depth))
    assert [problem.kind for problem in stream.problems] in (["depth"], ["syntax"])
    assert stream.problems[0].span.line == 3
    assert len(stream.documents) == 1


def test_nesting_within_libyaml_but_beyond_reason() -> None:
    stream = parse_yaml(SourceFile("f", "[" * 300 + "]" * 300))
    assert [problem.kind for problem in stream.problems] == ["depth"]


def test_a_control_character_has_a_line() -> None:
    stream = parse_yaml(SourceFile("f", "a: 1\nb: x\x07y\nc: 3\n"))
    assert stream.problems[0].span.line == 2
    assert "\\x07" in stream.problems[0].message


def test_an_empty_file_holds_nothing() -> None:
    for text in ("", "\n", "# only a comment\n", "---\n"):
        stream = parse_yaml(SourceFile("f", text))
        assert stream.problems == []
        assert all(isinstance(node, Scalar) and node.value == "" for node in stream.documents)


# -- YAML inside a scalar ----------------------------------------------------------------------------------------------


def test_embedded_documents_lie_in_the_outer_file() -> None:
    text = 'data:\n  patch: |-\n    - op: add\n      value: ["--port", 8000]\n  quoted: "k: v\\nl: w"\n'
    outer = scalar(text, "data", "patch")
    stream = parse_embedded(outer.text)
    (document,) = stream.documents
    assert isinstance(document, Sequence)
    (item,) = document.items
    assert isinstance(item, Mapping)
    assert (item.span.line, item.span.column) == (3, 7)
    value = item.get("value")
    assert isinstance(value, Sequence)
    port = value.items[0]
    assert isinstance(port, Scalar)
    assert port.value == "--port"
    assert port.text.span.text == "--port"
    assert port.text.span.line == 4
    quoted = parse_embedded(scalar(text, "data", "quoted").text).documents[0]
    assert isinstance(quoted, Mapping)
    last = quoted.get("l")
    assert isinstance(last, Scalar)
    assert last.text.span.text == "w"
    assert last.text.span.line == 5


def test_embedded_problems_lie_in_the_outer_file() -> None:
    stream = parse_embedded(scalar("a: |\n  ok: 1\n  bad: [1\n", "a").text)
    assert stream.problems
    assert stream.problems[0].span.line in (2, 3)


# -- properties --------------------------------------------------------------------------------------------------------

_CHARACTERS = st.text(st.sampled_from(list("ab \t\n'\"\\:#-|>{}[]&*!%@`é😀,?1")), max_size=60)


def assert_consistent(document: Node, size: int) -> None:
    for node in walk(document):
        assert 0 <= node.span.start <= node.span.end <= size
        if not isinstance(node, Scalar):
            continue
        text = node.text
        assert text.value == node.value
        at = 0
        for piece in text.pieces:
            assert 0 <= piece.span.start <= piece.span.end <= size
            if piece.exact:
                assert piece.span.text == text.value[at : at + piece.length]
            at += piece.length
        assert at == len(text.value)


@settings(deadline=None, max_examples=300)
@given(_CHARACTERS)
def test_any_text_is_read_with_consistent_positions(text: str) -> None:
    stream = parse_yaml(SourceFile("f", text))
    for document in stream.documents:
        assert_consistent(document, len(text))
    for problem in stream.problems:
        assert 0 <= problem.span.start <= problem.span.end <= max(len(text), 1)


@settings(deadline=None, max_examples=300)
@given(
    st.text(st.sampled_from(list("ab '\"\\:#-é😀$\t")), max_size=30), st.sampled_from(["'", '"', "|", ">", "|-", ">+"])
)
def test_a_value_is_found_again_in_its_scalar(value: str, style: str) -> None:
    if style == "'":
        source = "k: '" + value.replace("'", "''") + "'\n"
    elif style == '"':
        source = 'k: "' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"\n'
    else:
        value = "x" + value.rstrip() + "y"
        source = f"k: {style}\n  {value}\n  second line\n"
    stream = parse_yaml(SourceFile("f", source))
    assert stream.problems == []
    assert_consistent(stream.documents[0], len(source))
    node = stream.documents[0]
    assert isinstance(node, Mapping)
    inner = node.get("k")
    assert isinstance(inner, Scalar)
    assert inner.value.startswith(value)
    if value and style not in "'\"":
        assert inner.text.slice(0, len(value)).span.text == value


def test_schemas_of_kinds_are_not_parsed_and_nothing_moves() -> None:
    text = "a: 1\n---\napiVersion: x/v1\nkind: CustomResourceDefinition\nspec: {broken: [}\n---\nkind: Pod\nb: 2\n"
    stream = parse_yaml(SourceFile("f.yaml", text))
    assert stream.problems == []
    first, last = [node for node in stream.documents if isinstance(node, Mapping)]
    assert first.span.line == 1
    assert [(entry.key.value, entry.key.span.line) for entry in last.items()] == [("kind", 7), ("b", 8)]
    # only a document of its own is one, not a text that speaks of them
    inside = "kind: ConfigMap\ndata:\n  x: |\n    kind: CustomResourceDefinition\n"
    (kept,) = parse_yaml(SourceFile("f.yaml", inside)).documents
    assert isinstance(kept, Mapping)
    assert "CustomResourceDefinition" in kept.items()[1].value.span.text


def test_json_escapes_of_characters_in_two_halves() -> None:
    text = '{"a": "\\ud83d\\ude00 b", "c": "\\uD83D", "image": "vllm"}'
    stream = parse_yaml(SourceFile("a.json", text))
    assert stream.problems == []
    (document,) = stream.documents
    assert isinstance(document, Mapping)
    image = document.get("image")
    assert isinstance(image, Scalar)
    assert (image.value, image.span.text) == ("vllm", '"vllm"')
    # YAML knows no halves
    assert parse_yaml(SourceFile("a.yaml", text)).problems
