# SPDX-License-Identifier: Apache-2.0
"""The documentation as HTML: `python docs/render.py OUT`. It needs `pip install '.[docs,frameworks]'`.

The pages are Markdown, in pages/. The Python reference is pdoc's, of the installed pyflowk or else of this source tree;
the C reference comes from the comments of flowk.h. A warning names whatever is missing: a framework whose module cannot
be imported, a public name without a text. `-W error` makes warnings fail. A link to nowhere always fails.
"""

from __future__ import annotations

import argparse
import html
import importlib
import importlib.util
import json
import re
import runpy
import shutil
import sys
import warnings
from collections.abc import Collection, Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import c_header
import diagrams
import mask_pictures
import pdoc
import pdoc.doc
import pdoc.render
import pdoc.render_helpers
import pdoc.search
import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
GUIDE = {
    "index": "What it is",
    "getting_started": "Getting started",
    "choosing_a_function": "Choosing a function",
    "masks": "Masks in pictures",
    "pytorch": "PyTorch",
    "jax": "JAX",
    "c_and_cpp": "C and C++",
    "past_one_gpu": "Past one GPU",
    "recipes": "Recipes",
    "migration": "From PyTorch, JAX, NumPy, CuPy",
    "speed": "How fast, and why",
    "slow_calls": "My call is slow",
    "troubleshooting": "Troubleshooting",
    "versions": "Versions and the ABI",
    "packagers": "Packaging flowk",
}
MODULES = ["pyflowk", "pyflowk.memory", "pyflowk.torch", "pyflowk.torch.functional", "pyflowk.jax"]
MODULES += ["pyflowk.distributed"]
TOPICS: dict[str, str] = runpy.run_path(str(ROOT / "tools" / "function_topics.py"))["TOPICS"]
# What the types in the signatures stand for: each has an anchor on pyflowk's page, to which the signatures link.
TYPES = {
    "Array": "an array of NumPy, torch, CuPy, JAX, Numba: anything with `__dlpack__` or `__cuda_array_interface__`.",
    "ArrayT": "the same; the result is an array of this kind.",
    "Number": "a Python number or a NumPy scalar.",
    "Numbers": "the same, or lists of them.",
    "DTypeLike": 'a name ("bfloat16"), a `DType`, a dtype or scalar type of NumPy or ml_dtypes, or a dtype of torch.',
    "Stream": "a cudaStream_t as int, or a stream of cuda.core, torch, CuPy or Numba.",
}
HEADERS = ["flowk.h", "elementwise_ops.h", "flowk.hpp", "elementwise.cuh", "elementwise_views.cuh"]


class AsWritten(str):
    """An annotation that is shown as the source has it, `Array | None`, and not as what it stands for."""

    __repr__ = str.__str__


def module_url(name: str) -> str:
    return f"{name.replace('.', '/')}.html"


def documented_modules() -> dict[str, pdoc.doc.Module]:
    """The public modules that can be imported here."""
    modules = {}
    pdoc.doc.safe_eval_type = lambda annotation, *_: (  # type: ignore[assignment]
        AsWritten(annotation) if isinstance(annotation, str) else annotation
    )
    for name in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those of a framework's own modules
                module = importlib.import_module(name)
        except ImportError as error:
            warnings.warn(f"{name} is left out: {error}", stacklevel=2)
            continue
        for public in module.__all__:
            getattr(module, public)  # loads names that are imported on first use
        modules[name] = documented = pdoc.doc.Module(module)
        for public in module.__all__:
            if not documented.members[public].docstring:
                warnings.warn(f"{name}.{public} has no text", stacklevel=2)
        for member in documented.members.values():
            if isinstance(member, pdoc.doc.Class) and issubclass(member.obj, tuple):
                member.members.pop("__init__", None)  # a NamedTuple's fields are shown, each with its text
        if name == "pyflowk":
            documented.docstring = linked_topics(documented.docstring) + types_text()
        order = [*" ".join(TOPICS.values()).split(), *documented.members]
        members = sorted(documented.members.items(), key=lambda item: order.index(item[0]))
        documented.members = {public: member for public, member in members if public not in aliases()}
    return modules


def aliases() -> dict[str, str]:
    """The function that each other name of pyflowk is."""
    return importlib.import_module("pyflowk")._ALIASES  # type: ignore[no-any-return]


def topics_of(module: pdoc.doc.Module) -> list[tuple[str, list[pdoc.doc.Doc[Any]]]]:
    """The members of a module by topic; those without one are the last."""
    rest = dict(module.members)
    found = [(topic, [rest.pop(name) for name in names.split() if name in rest]) for topic, names in TOPICS.items()]
    return [(topic, members) for topic, members in [*found, ("", list(rest.values()))] if members]


def linked_topics(docstring: str) -> str:
    """The text with each name of its list of topics as code, which pdoc links."""

    def linked(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"\w+", r"`\g<0>`", found[2])

    return re.sub(r"^(- [^:]+: )((?:.|\n(?=  ))+)", linked, docstring, flags=re.MULTILINE)


def types_text() -> str:
    rows = "".join(f'<li id="type-{name}"><code>{name}</code>: {text}</li>\n' for name, text in TYPES.items())
    rows = re.sub("`(.*?)`", r"<code>\1</code>", rows)
    return f"\n\nTypes in the signatures:\n\n<ul>\n{rows}</ul>\n"


def configure(version: str, modules: Iterable[str]) -> None:
    pdoc.render.configure(docformat="numpy", show_source=False, template_directory=FOLDER / "templates")
    reference = [(name, module_url(name)) for name in modules]
    reference += [("C: flowk.h", "flowk_h.html"), ("Headers", "headers.html"), ("Examples", "examples.html")]
    guide = [(title, f"{name}.html") for name, title in GUIDE.items()]
    pdoc.render.env.globals |= {
        "version": version,
        "site": [("Guide", guide), ("Reference", reference)],
        "topics_of": topics_of,
        "anchor_of": anchor_of,
        "highlighting_light": HtmlFormatter(style="friendly").get_style_defs(".pdoc-code"),
        "highlighting_dark": HtmlFormatter(style="github-dark").get_style_defs(".pdoc-code"),
    }


def page(url: str, title: str, body: str, contents: Iterable[tuple[str, str, int]] = ()) -> str:
    template = pdoc.render.env.get_template("page.html.jinja2")
    return template.render(title=title, body=body, contents=list(contents), root="", here=url)


def headings(body: str) -> list[tuple[str, str, int]]:
    """The <h2> of a page, as (text, anchor, level)."""
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)
    return [(html.unescape(re.sub("<[^>]+>", "", text)), anchor, 2) for anchor, text in found]


def speed_table() -> str:
    """The table of bench/RESULTS.md's summary."""
    summary = (ROOT / "bench" / "RESULTS.md").read_text().partition("\n## Summary\n")[2]
    return "|" + summary.partition("\n|")[2].partition("\n\n")[0]


def guide_page(name: str) -> str:
    text = (FOLDER / "pages" / f"{name}.md").read_text()
    text = text.replace("[[speed_table]]", speed_table())
    body = str(pdoc.render_helpers.to_html(text))
    for names in re.findall(r"<p>\[\[(.*?)\]\]</p>", body):
        figures = "".join(
            diagrams.DIAGRAMS[one]() if one in diagrams.DIAGRAMS else mask_pictures.picture(one)
            for one in names.split(", ")
        )
        body = body.replace(f"<p>[[{names}]]</p>", f'<div class="pictures">{figures}</div>')
    return page(f"{name}.html", GUIDE[name], body, headings(body))


def c_reference() -> str:
    include = ROOT / "include" / "flowk"
    body, sections = c_header.page((include / "flowk.h").read_text(), (include / "elementwise_ops.h").read_text())
    contents: list[tuple[str, str, int]] = [("Conventions", "conventions", 2)]
    for title, entries in sections:
        contents.append((title, title.lower().replace(" ", "-"), 2))
        contents += [(entry.name, entry.name, 3) for entry in entries if not entry.name.endswith("_explain")]
        if title == "Elementwise":
            contents.append(("The operations", "operations", 2))
    return page("flowk_h.html", "flowk.h", f"<h1>flowk.h</h1>{body}", contents)


def files_page(url: str, title: str, text: str, files: Iterable[Path]) -> str:
    """Source files, each with an anchor of its name."""
    formatter = HtmlFormatter(nowrap=True)
    parts, contents = [f"<h1>{title}</h1>{pdoc.render_helpers.to_html(text)}"], []
    for path in files:
        code = pygments.highlight(path.read_text(), get_lexer_for_filename(path.name), formatter)
        parts.append(
            f'<h2 id="{path.name}">{path.name}</h2>'
            f'<div class="pdoc-code codehilite"><pre><code>{code}</code></pre></div>'
        )
        contents.append((path.name, path.name, 2))
    return page(url, title, "".join(parts), contents)


class Links(HTMLParser):
    """The anchors of a page and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if (name, tag) in (("href", "a"), ("src", "img")) and value and not value.startswith("data:"):
                self.links.add(value)


def python_reference(module: pdoc.doc.Module, modules: dict[str, pdoc.doc.Module]) -> str:
    """pdoc's page, with a heading per topic, a line per other name of a function, and links to the types of
    signatures; without its links to inherited members, which it does not show."""
    first_of = {members[0].name: topic for topic, members in topics_of(module) if topic}

    def section(found: re.Match[str]) -> str:
        name, topic = found[1], first_of.get(found[1])
        heading = f'<h2 class="topic" id="{anchor_of(topic)}">{topic}</h2>\n' if topic else ""
        others = [alias for alias, of in aliases().items() if of == name and hasattr(module.obj, alias)]
        link = f'<a href="#{name}"><code>{name}</code></a>'
        lines = "".join(
            f'<section id="{alias}" class="alias"><code>{alias}</code>: another name of {link}</section>\n'
            for alias in others
        )
        return f"{heading}{found[0]}\n{lines}"

    text = pdoc.render.html_module(module, modules)
    text = re.sub(r'<section id="([^"]+)">.*?</section>', section, text, flags=re.DOTALL)
    text = re.sub(r"<wbr>\(<span class=\"base\">pyflowk\._[^<]*</span>\)", "", text)  # bases that are not public
    text = re.sub(r'<h6 id="[^"]*">', "<h6>", text)  # each section of a text has the same
    if module.modulename in ("pyflowk", "pyflowk.memory"):
        page = "pyflowk.html" if module.modulename == "pyflowk" else "../pyflowk.html"
        names = "|".join(TYPES)
        text = re.sub(rf'<span class="n">({names})</span>', rf'<a href="{page}#type-\1">\1</a>', text)
    anchors = Links(text).anchors
    return re.sub(r'<a href="#([^"]+)">(.*?)</a>', lambda found: found[0] if found[1] in anchors else found[2], text)


def anchor_of(title: str) -> str:
    return "-".join(re.findall(r"\w+", title.lower()))


def search_index(modules: dict[str, pdoc.doc.Module], texts: dict[str, str]) -> str:
    """pdoc's search through the public names, other names, the sections of the guide and the C reference."""
    entries = pdoc.search.make_index(modules, lambda doc: not doc.name.startswith("_"), "numpy")
    entries += [
        {"fullname": f"pyflowk.{alias}", "modulename": "pyflowk", "qualname": alias, "doc": f"Another name of {name}."}
        for alias, name in aliases().items()
    ]
    for page, title in GUIDE.items():
        for anchor, heading, text in re.findall(
            r'<h2 id="([^"]+)">(.*?)</h2>(.*?)(?=<h2|</main>)', texts[f"{page}.html"], re.DOTALL
        ):
            text = re.sub(r'<div class="pictures">.*?</figure></div>', "", text, flags=re.DOTALL)
            entries.append({"fullname": f"{title}: {heading}", "modulename": page, "qualname": anchor, "doc": text})
    for name, text in re.findall(
        r'<section id="(\w+)".*?<div class="docstring">(.*?)</section>', texts["flowk_h.html"], re.DOTALL
    ):
        entries.append({"fullname": name, "modulename": "flowk_h", "qualname": name, "doc": text})
    for entry in entries:
        entry |= {field: re.sub("</?span[^>]*>", "", entry.get(field, "")) for field in ("doc", "signature")}
    # The browser makes the index of these texts, which takes 0.1 s; made here it would have three times their size.
    return pdoc.render.env.get_template("search.js.jinja2").render(search_index=json.dumps(entries))


def dead_links(out: Path, left_out: Collection[str] = ()) -> list[str]:
    """The links between pages that lead nowhere. Links to `left_out`, pages of modules that cannot be imported, count
    as right."""
    absent = {(out / url).resolve() for url in left_out}
    pages = {path.resolve(): Links(path.read_text()) for path in out.rglob("*.html")}
    dead = []
    for path, found in pages.items():
        for link in sorted(found.links):
            if "://" in link:
                continue
            url, _, anchor = link.partition("#")
            file = (path.parent / url).resolve() if url else path
            target = pages.get(file)
            if file in absent:
                continue
            if target is None and file.suffix == ".svg" and file.exists():
                continue
            if target is None or (anchor and anchor not in target.anchors):
                dead.append(f"{path.relative_to(out.resolve())} links to {link}, which is not there")
    return dead


def render(out: Path) -> None:
    if out.exists() and not (out / "flowk_h.html").exists() and any(out.iterdir()):
        raise SystemExit(f"{out} has other files in it")
    if importlib.util.find_spec("pyflowk") is None:
        sys.path.append(str(ROOT))
    modules = documented_modules()
    version = importlib.import_module("pyflowk").__version__
    configure(version, modules)
    texts: dict[str, Any] = {f"{name}.html": guide_page(name) for name in GUIDE}
    texts |= {module_url(name): python_reference(module, modules) for name, module in modules.items()}
    texts["flowk_h.html"] = c_reference()
    texts["headers.html"] = files_page(
        *("headers.html", "Headers", "The headers that are installed in `include/flowk`, as they are."),
        [ROOT / "include" / "flowk" / name for name in HEADERS],
    )
    texts["examples.html"] = files_page(
        *(
            "examples.html",
            "Examples",
            "The programs of `tests/examples`, which tests build and run, and the files of their builds.",
        ),
        sorted(path for path in (ROOT / "tests" / "examples").iterdir() if path.is_file()),
    )
    shutil.rmtree(out, ignore_errors=True)
    others = {path.name: path.read_text() for path in (ROOT / "bench" / "results").glob("*.svg")}
    others["search.js"] = search_index(modules, texts)
    for url, text in {**texts, **others}.items():
        path = out / url
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    faults = dead_links(out, [module_url(name) for name in MODULES if name not in modules])
    if faults:
        raise SystemExit("\n".join(faults))
    print(f"{len(texts)} pages: {out / 'index.html'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder of the pages, which is made or made anew")
    render(parser.parse_args().out)
