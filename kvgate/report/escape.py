"""Values from files, made harmless for the place they are printed in.

A manifest is written by whoever opens a pull request: nothing in it may move a terminal's cursor, open a workflow
command, mention a person, or close a table. Secrets that stand in an excerpt of a file are masked.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from kvgate.patterns import regex
from kvgate.source.text import SourceFile

# without one of these nothing names a secret, and the expressions below need not be compiled
_SECRETS: Final = ("key", "token", "secret", "password", "passwd", "passphrase")
# names that end so, but not a bare ``key``, which Kubernetes uses for anything
_NAME: Final = (
    r"(?:[A-Za-z0-9]+[_-])*"
    r"(?:(?:api|access|auth|private|secret)[_-]?key|[A-Za-z0-9]+[_-]key|token|secret|password|passwd|passphrase)"
)
_PAIR: Final = regex(
    rf"(?P<name>(?<![\w-])(?:--{_NAME}(?:=|[\"']?,?\s+)|{_NAME}[\"']?\s*[:=]\s*)[\"']?)(?P<value>[^\s\"',}}\]]+)",
    re.IGNORECASE,
)
_BARE: Final = regex(rf"^\s*(?:-\s+)?[\"']?--{_NAME}[\"']?,?\s*$", re.IGNORECASE)
_ITEM: Final = regex(r"^(?P<lead>\s*(?:-\s+)?[\"']?)(?P<value>[^\s\"',]+)(?P<tail>[\"']?,?.*)$")
_NAMED: Final = regex(rf"\bname:\s*[\"']?{_NAME}[\"']?\s*$", re.IGNORECASE)
_VALUE: Final = regex(r"^(?P<lead>\s*(?:-\s+)?value:\s*[\"']?)(?P<value>[^\s\"']+)(?P<tail>.*)$")
_PLAIN_VALUES: Final = regex(r"\$|true$|false$|\d{1,3}$|valueFrom|secretKeyRef|[-|>{\[]", re.IGNORECASE)


def visible(text: str) -> str:
    """Text without control characters, line breaks and direction marks: they are written as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() if char not in "\t" else " "
        for char in text
    )


def excerpt_line(file: SourceFile, line: int) -> str:
    """A line of a file as it may be shown: secrets masked, each character as wide as it was (tabs become blanks)."""
    text = file.line_text(line)
    for secret in file.secrets:
        text = text.replace(secret, "*" * len(secret))
    before, after = file.line_text(line - 1) if line > 1 else "", file.line_text(line + 1)
    around = f"{before}\n{text}\n{after}".casefold()
    if any(word in around for word in _SECRETS):
        text = _without_secrets(text, before, after)
    return "".join(
        char if char.isprintable() else " " if char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def _without_secrets(text: str, before: str, after: str) -> str:
    text = _PAIR.sub(_masked, text)
    if _BARE.match(before):
        return _ITEM.sub(_masked_item, text)
    if _NAMED.search(before) or _NAMED.search(after):
        return _VALUE.sub(_masked_item, text)
    return text


def _masked(match: re.Match[str]) -> str:
    value = match["value"]
    if _PLAIN_VALUES.match(value):
        return match.group()
    return match["name"] + "*" * len(value)


def _masked_item(match: re.Match[str]) -> str:
    value = match["value"]
    if value.startswith(("$", "--")):
        return match.group()
    return match["lead"] + "*" * len(value) + match["tail"]


def width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    columns = 0
    for char in text:
        if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        columns += 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
    return columns


def github_data(text: str) -> str:
    """Text of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """A property of a workflow command."""
    return github_data(text).replace(":", "%3A").replace(",", "%2C")


_MARKDOWN: Final = regex(r"([\\`*_{}\[\]()#+!|~>-])")


#: Where GitHub sees a reference, in the rendered text: a backslash before it changes nothing.
_REFERENCE: Final = regex(r"(?<=#)(?=\d)|(?<=\bgh-)(?=\d)", re.IGNORECASE)


def markdown(text: str) -> str:
    """Text in Markdown: no markup, no HTML, no mention (``@name``), no reference (``#1``, ``GH-1``), no autolink."""
    shown = _REFERENCE.sub("\u2060", visible(text))
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = _MARKDOWN.sub(r"\\\1", shown)
    # an invisible word joiner keeps GitHub from seeing a mention or an address
    return shown.replace("@", "@\u2060").replace("://", ":\u2060//").replace("www.", "www\u2060.")


def markdown_code(text: str) -> str:
    """Text as inline code, whatever backticks it holds; a table cell may hold it."""
    shown = visible(text).replace("|", "\\|") if text else " "
    fence = "`"
    while fence in shown:
        fence += "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def xml(text: str) -> str:
    """Text in XML 1.0: characters that it forbids are written as ``\\x1b``."""
    legal = "".join(
        char
        if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff\x7f")
        else char.encode("unicode_escape").decode()
        for char in text
    )
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def attribute(text: str) -> str:
    """Text in an XML attribute, on one line: a line break in it could open a workflow command on a runner's output."""
    return xml(visible(text))
