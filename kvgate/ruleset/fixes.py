"""What a rule file's ``fix`` names: how a finding is mended by editing.

A fix is a text edit that changes nothing else. A *safe* one is applied by ``--fix``: a flag that the release refuses is
removed or renamed, an absent volume added. Where a figure must be chosen, the fix is *unsafe* and only suggested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kvgate.findings.finding import Edit, Fix
from kvgate.records import record
from kvgate.ruleset.surgery import add_item, add_lines, is_block, remove_argument, rename_flag, replace_value
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Mapping as YamlMapping
from kvgate.source.yaml_tree import Sequence as YamlSequence

if TYPE_CHECKING:
    from kvgate.engine.arguments import Argument
    from kvgate.ruleset.case import Case
    from kvgate.ruleset.model import Draft

Found = tuple[str, tuple[Edit, ...]]
"""What the fix does, for people, and its edits."""


@record
class FixChoice:
    """What a rule file says of mending: the edit by its name, whether it is safe, and what it takes.

    Attributes:
        edit: one of :data:`EDITS`.
        safe: applied by ``--fix``; otherwise only suggested.
        argument: the engine argument that it changes (its name with underscores).
        value: placeholder of the message that holds the new value.
    """

    edit: str
    safe: bool = False
    argument: str | None = None
    value: str | None = None


def make_fix(choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]) -> Fix | None:
    """The fix of one finding, None where the text cannot be changed without touching more."""
    found = EDITS[choice.edit](choice, case, draft, primary, values)
    if found is None:
        return None
    title, edits = found
    return Fix(edits=edits, safe=choice.safe, title=title)


def _argument_at(case: Case, primary: Span) -> Argument | None:
    """The argument whose flag, or whole, stands at a place."""
    for argument in case.plan.parsed.arguments.values():
        flag = argument.flag
        if flag is not None and flag.span.file is primary.file and flag.span.start == primary.start:
            return argument
    return None


def _named(choice: FixChoice, case: Case) -> Argument | None:
    return case.plan.parsed.arguments.get(choice.argument or "")


def _spell_out(choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]) -> Found | None:
    argument = _argument_at(case, primary)
    full = values.get("full")
    edit = rename_flag(argument, str(full)) if argument is not None and full else None
    return (f"write {full}", (edit,)) if edit is not None else None


def _replace_flag(
    choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]
) -> Found | None:
    """Removes a flag whose effect is gone or the default, or gives it its new name where the value stays the same."""
    from kvgate.engine.flags import flags_of_release
    from kvgate.engine.releases import resolve_version
    from kvgate.engine.replacements import replacement_of

    argument = _argument_at(case, primary)
    if argument is None or argument.repeated:
        return None
    name = str(values.get("flag") or "")
    other = replacement_of(name, case.plan.version)
    if other is None:
        return None
    if other.delete:
        edit = remove_argument(argument)
        return (f"remove {name}", (edit,)) if edit is not None else None
    release = flags_of_release(resolve_version(case.plan.version).table)
    new = release.spellings.get(other.new or "")
    old = argument.definition
    same = new is not None and old is not None and (new[0].kind, new[0].many) == (old.kind, old.many)
    if other.text != other.new or not same or other.new is None:
        return None
    edit = rename_flag(argument, other.new)
    return (f"rename {name} to {other.new}", (edit,)) if edit is not None else None


def _remove_argument(
    choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]
) -> Found | None:
    argument = _named(choice, case)
    edit = remove_argument(argument) if argument is not None else None
    return (f"remove --{(choice.argument or '').replace('_', '-')}", (edit,)) if edit is not None else None


def _set_argument(
    choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]
) -> Found | None:
    argument = _named(choice, case) if choice.argument else _argument_at(case, primary)
    value = values.get(choice.value or "")
    if argument is None or value is None or argument.repeated:
        return None
    edit = replace_value(argument, str(value))
    return (f"set --{argument.dest.replace('_', '-')} to {value}", (edit,)) if edit is not None else None


def _remove_variable(
    choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]
) -> Found | None:
    """Removes a variable that a release no longer reads and whose effect is the default."""
    from kvgate.engine.replacements import replacement_of

    name = str(values.get("name") or "")
    other = replacement_of(name, case.plan.version)
    if other is None or not other.delete:
        return None
    file = primary.file
    first, last = primary.line, primary.end_line
    if primary.end > primary.start and file.text[primary.end - 1] == "\n":
        last -= 1
    start = file.line_starts[first - 1]
    end = file.line_starts[last] if last < len(file.line_starts) else len(file.text)
    head, tail = file.text[start : primary.start], file.text[primary.end : end]
    item = head.strip() in ("", "-") and (tail.strip() == "" or tail.lstrip().startswith("#"))
    if not item:
        return None
    return f"remove {name}", (Edit(Span(file, start, end), ""),)


SHM_SIZE: Final = "8Gi"


def _add_shared_memory(
    choice: FixChoice, case: Case, draft: Draft, primary: Span, values: Mapping[str, Any]
) -> Found | None:
    host, node = case.host, case.unit.node
    if not isinstance(node, YamlMapping):
        return None
    if host.is_compose:
        if node.get("ipc") is not None or node.get("shm_size") is not None:
            return None
        edit = add_lines(node, ["shm_size: 8gb"])
        return ("set shm_size: 8gb", (edit,)) if edit is not None else None
    spec = host.spec
    if case.unit.shared_memory is not None or not isinstance(spec, YamlMapping) or not is_block(spec):
        return None
    names = {mount.target.rstrip("/") for mount in host.mounts}
    if "/dev/shm" in names:  # noqa: S108 - a path in a manifest
        return None
    mount = _into(node, "volumeMounts", ["name: dshm", "mountPath: /dev/shm"])
    volume = _into(spec, "volumes", ["name: dshm", "emptyDir:", "  medium: Memory", f"  sizeLimit: {SHM_SIZE}"])
    if mount is None or volume is None or "dshm" in spec.span.text:
        return None
    if mount.span.start == volume.span.start:
        # both go behind the last line of the container, which ends the pod: the mount first
        volume = Edit(volume.span, mount.replacement + volume.replacement)
        return f"mount {SHM_SIZE} of memory at /dev/shm", (volume,)
    return f"mount {SHM_SIZE} of memory at /dev/shm", tuple(sorted((mount, volume), key=lambda edit: edit.span.start))


def _into(node: YamlMapping, key: str, lines: list[str]) -> Edit | None:
    """An item into a list of a block mapping, which is made where there is none."""
    existing = node.get(key)
    if existing is None:
        return add_lines(node, [f"{key}:", f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])
    return add_item(existing, lines) if isinstance(existing, YamlSequence) else None


EDITS: Final[dict[str, Callable[[FixChoice, Case, Draft, Span, Mapping[str, Any]], Found | None]]] = {
    "spell-out-flag": _spell_out,
    "replace-flag": _replace_flag,
    "remove-argument": _remove_argument,
    "set-argument": _set_argument,
    "remove-variable": _remove_variable,
    "add-shared-memory": _add_shared_memory,
}
