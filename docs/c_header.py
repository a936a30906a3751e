# SPDX-License-Identifier: Apache-2.0
"""A C header as HTML: sections, and one entry per name that has a `/** */` comment. The comments are the manual."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer

_DOCUMENTED = re.compile(
    r"/\* -{20,}\n \* (?P<section>[A-Z ]+)\n \* -{10,} \*/"
    r"|/\*\*(?!<)(?P<text>.*?)\*/"
    r"|#define (?P<macro>\w+) [^\n]*?/\*\*<(?P<behind>.*?)\*/"
    r"|(?P<constants>__extension__ enum \w* ?\{(?P<body>.*?)\};)",
    re.DOTALL,
)
_CONSTANT = re.compile(
    r"(?:/\*\*(?P<before>[^<].*?)\*/\s*)?(?P<name>FLOWK_\w+) = (?P<value>[^,/\n]+),?[ \n]*"
    r"(?:/\*\*<(?P<behind>.*?)\*/)?",
    re.DOTALL,
)
_MEMBER = re.compile(r"^  [^\n/]*?(?P<name>\w+)(?:\[\w+\])?;(?:\s*/\*\*<(?P<behind>.*?)\*/)?", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r'OP\((\w+), (\d+), (\w+), (\w+), (\w+), (\d), "(.*?)"\)')
_LABEL = re.compile(
    r"((?:Cost|Element types|Numerics|Parameters|Pointers|Scalars|Shapes|Sizes of 0|Statuses|To|Types)\b"
    r"[\w ,()]*): (.+)"
)
_TOPIC = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)?\.)(?= )")
_FORMULA = re.compile(r"\w+(\[[^=]*\])? = .*\[")


class Constant(NamedTuple):
    name: str
    value: str
    text: str


class Entry(NamedTuple):
    """One documented name: a function, a type or a macro."""

    kind: str
    name: str
    declaration: str
    text: str
    constants: list[Constant]


class Section(NamedTuple):
    title: str
    entries: list[Entry]


def plain(comment: str) -> str:
    """The text of a comment, without its stars; indentation is kept."""
    lines = [re.sub(r"^\s*\* ?", "", line) if i else line.strip() for i, line in enumerate(comment.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip("\n ")


def parse(header: str) -> tuple[str, list[Section]]:
    """The text on top of the header, and its sections."""
    introduction, sections = "", [Section("Version and basic types", [])]
    position = 0
    while (found := _DOCUMENTED.search(header, position)) is not None:
        position = found.end()
        entries = sections[-1].entries
        if found["section"]:
            title = found["section"].capitalize()
            sections.append(Section({"Prelu": "PReLU"}.get(title, title), []))
        elif found["macro"]:
            declaration = found[0].partition("/**<")[0].strip()
            entries.append(Entry("macro", found["macro"], declaration, plain(found["behind"]), []))
        elif found["constants"]:
            constants = list(_constants(found["body"]))
            if constants and entries and entries[-1].kind == "type":
                entries[-1].constants.extend(constants)
        elif "@file" in found["text"]:
            introduction = plain(found["text"]).partition("@file\n")[2]
        else:
            declaration, position = _declaration(header, position)
            entries.append(_entry(plain(found["text"]), declaration))
    return introduction, sections


def operations(header: str) -> dict[str, list[tuple[str, ...]]]:
    """The rows of flowk/elementwise_ops.h by their family: "UNARY", "BINARY", "TERNARY"."""
    parts = re.split(r"#define FLOWK_(\w+)_OPS\(OP\)", header)[1:]
    return {family: _ROW.findall(rows) for family, rows in zip(parts[::2], parts[1::2])}


def _constants(body: str) -> Iterator[Constant]:
    for found in _CONSTANT.finditer(body):
        value = found["value"].strip()
        # A count of the rows of a list has no value that a reader could use.
        yield Constant(found["name"], value if value.isdigit() else "", plain(found["before"] or found["behind"] or ""))


def _declaration(header: str, start: int) -> tuple[str, int]:
    """The declaration behind a comment, and where it ends."""
    start = re.compile(r"\s*").match(header, start).end()  # type: ignore[union-attr]
    if header.startswith("#define", start):
        end = re.compile(r"(?:[^\n]*\\\n)*[^\n]*").match(header, start).end()  # type: ignore[union-attr]
        return header[start:end], end
    depth = 0
    for found in re.compile(r"/\*.*?\*/|[{};]", re.DOTALL).finditer(header, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if found[0] == ";" and depth == 0:
            return header[start : found.end()], found.end()
    raise ValueError(f"no declaration behind the comment before {header[start : start + 60]!r}")


def _entry(text: str, declaration: str) -> Entry:
    if declaration.startswith("#define"):
        name = declaration.split()[1].partition("(")[0]
        return Entry("macro", name, declaration, text, [])
    if declaration.startswith("FLOWK_API"):
        name = re.search(r"(\w+)\(", declaration)[1]  # type: ignore[index]
        return Entry("function", name, _one_parameter_per_line(declaration), text, [])
    name = re.search(r"(\w+);$", declaration)[1]  # type: ignore[index]
    members = []
    if declaration.startswith("typedef struct") and "{" in declaration:
        body = declaration.partition("{")[2]
        pending = ""
        for found in re.compile(r"/\*\*(?!<)(?P<text>.*?)\*/|" + _MEMBER.pattern, re.DOTALL | re.MULTILINE).finditer(
            body
        ):
            if found["text"]:
                pending = plain(found["text"])
            else:
                members.append(Constant(found["name"], "", plain(found["behind"] or "") or pending))
                pending = ""
    shown = re.sub(r"\s*/\*\*.*?\*/", "", declaration, flags=re.DOTALL)
    return Entry("type", name, re.sub(r"\n\n+", "\n", shown), text, members)


def _one_parameter_per_line(declaration: str) -> str:
    text = " ".join(declaration.removeprefix("FLOWK_API ").split())
    if len(text) <= 72:
        return text
    before, _, parameters = text.partition("(")
    return f"{before}(\n    " + ",\n    ".join(parameters.removesuffix(");").split(", ")) + ");"


# ---- HTML -----------------------------------------------------------------------------------------------------------


class Writer:
    """Writes entries as HTML; names of `anchors` become links."""

    def __init__(self, anchors: set[str]) -> None:
        self.anchors = anchors
        self._code = HtmlFormatter(nowrap=True)

    def code(self, text: str) -> str:
        """A block of C or C++."""
        highlighted = pygments.highlight(text, CppLexer(), self._code).strip("\n")
        return f'<div class="pdoc-code codehilite"><pre><code>{highlighted}</code></pre></div>'

    def inline(self, text: str) -> str:
        """Escaped, with links to names and `code`."""

        def linked(found: re.Match[str]) -> str:
            word = found[1]
            for name in (word, f"FLOWK_STATUS_{word}", f"FLOWK_{word}"):
                if name in self.anchors:
                    return f'<a href="#{name}">{found[0]}</a>'
            return found[0]

        text = html.escape(text, quote=False)
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
        return re.sub(r"\b(flowk_\w+|[A-Z][A-Z0-9_]{3,})\b(\(\))?", linked, text)

    def prose(self, text: str) -> str:
        """Paragraphs, labels with hanging indents, lists, and lines that are formulas or tables."""
        lines, blocks = text.split("\n"), []
        paragraph: list[str] = []

        def end_paragraph() -> None:
            if paragraph:
                topic = _TOPIC.sub(r"<strong>\1</strong>", self.inline(" ".join(paragraph)))
                blocks.append(f"<p>{topic}</p>")
                paragraph.clear()

        i = 0
        while i < len(lines):
            line = lines[i]
            item, label = line.startswith("- "), _LABEL.fullmatch(line)
            if not line:
                end_paragraph()
            elif item or label:
                end_paragraph()
                first = line[2:] if item else label[2]  # type: ignore[index]
                last = i + 1
                while last < len(lines) and lines[last].startswith("  "):
                    last += 1
                body = self.prose("\n".join([first, *_dedented(lines[i + 1 : last])]))
                blocks.append(f"<ul><li>{body}</li></ul>" if item else f"<dl><dt>{label[1]}</dt><dd>{body}</dd></dl>")  # type: ignore[index]
                i = last - 1
            elif line.isupper() and " " not in line:
                end_paragraph()
                blocks.append(f'<h2 id="{line.lower()}">{line.capitalize()}</h2>')
            elif line.startswith("  ") or "  " in line or _FORMULA.match(line):
                end_paragraph()
                blocks.append(f"<pre>{html.escape(line.replace('`', ''), quote=False)}</pre>")
            else:
                paragraph.append(line)
            i += 1
        end_paragraph()
        joined = "".join(blocks)
        return re.sub("</ul><ul>|</dl><dl>", "", joined).replace("</pre><pre>", "\n")

    def entry(self, entry: Entry) -> str:
        """A section with the name as its anchor."""
        rows = "".join(
            f'<tr id="{constant.name if entry.constants and constant.name.startswith("FLOWK") else ""}">'
            f"<td><code>{_breakable(constant.name)}</code>{f' = {constant.value}' if constant.value else ''}</td>"
            f"<td>{self.prose(constant.text)}</td></tr>"
            for constant in entry.constants
        ).replace(' id=""', "")
        table = f"<table>{rows}</table>" if rows else ""
        return (
            f'<section id="{entry.name}" class="{entry.kind}"><h3>{entry.name}<a class="headerlink" '
            f'href="#{entry.name}" aria-label="link"></a></h3>'
            f'{self.code(entry.declaration)}<div class="docstring">{self.prose(entry.text)}{table}</div></section>'
        )

    def operations(self, families: dict[str, list[tuple[str, ...]]]) -> str:
        """One table per family, with an anchor per constant."""
        tables = []
        for family, rows in families.items():
            cells = "".join(
                f'<tr id="FLOWK_{family}_{constant}">'
                f"<td><code>{_breakable(f'FLOWK_{family}_{constant}')}</code> = {value}</td>"
                f"<td><code>{html.escape(formula)}</code></td><td>{takes}</td><td>{result}</td></tr>"
                for constant, value, _, takes, result, _, formula in rows
            )
            head = "<tr><th>constant</th><th>formula</th><th>takes</th><th>result</th></tr>"
            tables.append(f'<h3 id="{family.lower()}">{family.capitalize()}</h3><table>{head}{cells}</table>')
        return "".join(tables)


def _breakable(name: str) -> str:
    """A name that a narrow table may break after an underscore."""
    return name.replace("_", "_<wbr>")


def _dedented(lines: list[str]) -> list[str]:
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return [line[indent:] for line in lines]


def page(header: str, operations_header: str) -> tuple[str, list[tuple[str, list[Entry]]]]:
    """The whole reference as HTML, and the names by section for its navigation."""
    introduction, sections = parse(header)
    families = operations(operations_header)
    anchors = {entry.name for section in sections for entry in section.entries}
    anchors |= {constant.name for section in sections for entry in section.entries for constant in entry.constants}
    anchors |= {f"FLOWK_{family}_{row[0]}" for family, rows in families.items() for row in rows}
    writer = Writer(anchors)
    # Without the numbered list of contents: the page has its own.
    introduction = "\n".join(line for line in introduction.split("\n") if not re.match(r"\s+\d+\. ", line))
    parts = [writer.prose(introduction)]
    for section in sections:
        parts.append(f'<h2 id="{_anchor(section.title)}">{section.title}</h2>')
        parts += [writer.entry(entry) for entry in section.entries]
        if section.title == "Elementwise":
            comment = plain(operations_header.partition("A row is OP")[2].partition("*/")[0])
            columns = re.findall(r"^  (takes|result) +(.*(?:\n {10,}.*)*)", comment, re.MULTILINE)
            legend = "".join(
                f"<dt>{name}</dt><dd>{writer.inline(' '.join(text.split()))}</dd>" for name, text in columns
            )
            parts.append(f'<h2 id="operations">The operations</h2><dl>{legend}</dl>{writer.operations(families)}')
    return "\n".join(parts), [(section.title, section.entries) for section in sections if section.entries]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
