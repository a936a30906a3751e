# SPDX-License-Identifier: Apache-2.0
"""docs/render.py renders without a warning and leaves out no public name; test_readme.py runs the examples."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from source_tree import ROOT, tool_at

import pyflowk

DOCS = ROOT / "docs"
HEADER = (ROOT / "include" / "flowk" / "flowk.h").read_text()
C_FUNCTIONS = re.findall(r"^FLOWK_API [^;(]*?(flowk_\w+)\(", HEADER, re.MULTILINE)
OF_TORCH = ("pyflowk.torch", "pyflowk.torch.functional", "pyflowk.distributed")
FRAMEWORKS = {**dict.fromkeys(OF_TORCH, "torch"), "pyflowk.jax": "jax"}
MODULES = {name: FRAMEWORKS.get(name) for name in ("pyflowk", "pyflowk.memory", *FRAMEWORKS)}


def has_framework(name: str | None) -> bool:
    return name is None or (sys.modules.get(name, name) is not None and find_spec(name) is not None)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages. A module without its framework is left out with a warning."""
    pytest.importorskip("pdoc")
    out = tmp_path_factory.mktemp("docs") / "out"
    warnings = "error" if all(map(has_framework, MODULES.values())) else "default"
    result = subprocess.run(
        [sys.executable, "-W", warnings, DOCS / "render.py", out],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return out


def section(page: str, name: str) -> str:
    """The part of a page from an anchor to the end of its section."""
    found = re.search(rf'<section id="{re.escape(name)}".*?</section>', page, re.DOTALL)
    assert found, f"{name} is not on the page"
    return found[0]


def words(text: str) -> int:
    return len(re.sub("<[^>]+>", " ", text).split())


@pytest.mark.parametrize("name", [name for name, framework in MODULES.items() if has_framework(framework)])
def test_every_public_python_name_is_on_its_page_with_its_parameters_and_text(site: Path, name: str) -> None:
    module = import_module(name)
    page = (site / f"{name.replace('.', '/')}.html").read_text()
    for public in module.__all__:
        shown, value = section(page, public), getattr(module, public)
        if public in pyflowk._ALIASES:
            assert f'<a href="#{pyflowk._ALIASES[public]}">' in shown and words(shown) == 6
            continue
        assert words(shown.partition('class="docstring"')[2]) >= 3, f"{public} has no text"
        if inspect.isfunction(value):
            text = re.sub("<[^>]+>", "", shown)
            assert all(f"{parameter}:" in text for parameter in inspect.signature(value).parameters), public


def test_the_reference_is_by_topic(site: Path) -> None:
    page, topics = (site / "pyflowk.html").read_text(), tool_at("tools/function_topics.py").TOPICS
    headings = re.findall(r'<h2 class="topic" id="([^"]+)">(.*?)</h2>', page)
    assert [title for _, title in headings] == list(topics)
    for (anchor, title), text in zip(headings, page.split('<h2 class="topic"')[1:]):
        shown = [name for name in re.findall(r'<section id="(\w+)"', text) if name not in pyflowk._ALIASES]
        assert f'href="#{anchor}"' in page and shown == topics[title].split()


def test_help_begins_with_the_functions_by_topic() -> None:
    assert pyflowk.__doc__
    names = set(re.findall(r"\w+", pyflowk.__doc__.split("\n\n")[2]))
    assert names >= set(pyflowk.__all__)


def test_types_of_signatures_are_links(site: Path) -> None:
    page = (site / "pyflowk.html").read_text()
    assert '<a href="pyflowk.html#type-ArrayT">ArrayT</a>' in section(page, "permute")
    memory = (site / "pyflowk" / "memory.html").read_text()
    assert '<a href="../pyflowk.html#type-Stream">Stream</a>' in memory
    assert "ForwardRef" not in page + memory and "Alias for field" not in page + memory


@pytest.mark.skipif(not has_framework("torch"), reason="could not import 'torch'")
def test_modules_of_pytorch_show_their_constructors(site: Path) -> None:
    import pyflowk.torch

    page = (site / "pyflowk" / "torch.html").read_text()
    for name in pyflowk.torch.__all__[:-1]:
        signature = inspect.signature(getattr(pyflowk.torch, name))
        parameters = [one.name for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
        parameters = parameters if parameters != ["args"] else []  # of Sigmoid, which has no constructor of its own
        text = "".join(re.sub("<[^>]+>", "", section(page, name)).split())
        assert all(re.search(rf"[(,]{parameter}[:=]", text) for parameter in parameters), name


def test_the_search_finds_functions_other_names_sections_and_c_functions(site: Path) -> None:
    index = (site / "search.js").read_text()
    assert len(index) < 500_000
    for name in (*pyflowk.__all__, *C_FUNCTIONS, "Recipes: Packed documents"):
        assert f'"fullname": "{"" if " " in name or name in C_FUNCTIONS else "pyflowk."}{name}"' in index, name
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert text.count('<input type="search"') == 1 and 'button.className = "copy"' in text
        assert f'script.src = "{"../" * (len(page.relative_to(site).parts) - 1)}search.js"' in text


def test_every_c_function_is_on_its_page_with_its_declaration_and_text(site: Path) -> None:
    assert len(C_FUNCTIONS) == len(set(C_FUNCTIONS)) == HEADER.count("\nFLOWK_API ")
    page = (site / "flowk_h.html").read_text()
    assert page.count('class="function"><h3>') == len(C_FUNCTIONS)
    for name in C_FUNCTIONS:
        shown = section(page, name)
        assert words(shown.partition('class="docstring"')[2]) >= 3, f"{name} has no text"
        declaration = re.search(rf"^FLOWK_API ([^;]*?{name}\([^;]*\);)", HEADER, re.MULTILINE)
        assert declaration
        text = re.sub("<[^>]+>", "", shown.partition("<pre>")[2].partition("</pre>")[0])
        assert "".join(text.split()) == "".join(declaration[1].split())


def test_every_c_type_macro_and_constant_is_on_its_page(site: Path) -> None:
    page = (site / "flowk_h.html").read_text()
    macros = set(re.findall(r"^#define (FLOWK_\w*[A-Z])\b", HEADER, re.MULTILINE)) - {"FLOWK_FLOWK_H", "FLOWK_API"}
    types = set(re.findall(r"^(?:typedef [^;{]*?[ *]|\} )(flowk_\w+);", HEADER, re.MULTILINE))
    constants = set(re.findall(r"^  (FLOWK_\w+) = ", HEADER, re.MULTILINE))
    operations = (ROOT / "include" / "flowk" / "elementwise_ops.h").read_text()
    for family, rows in re.findall(r"#define FLOWK_(\w+)_OPS\(OP\)(.*?)\n\n", operations, re.DOTALL):
        constants |= {f"FLOWK_{family}_{name}" for name in re.findall(r"OP\((\w+),", rows)}
    assert len(macros) >= 8 and len(types) >= 8 and len(constants) >= 80
    missing = {name for name in macros | types | constants if f'id="{name}"' not in page}
    assert not missing


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {path.stem for path in (DOCS / "pages").glob("*.md")}
    index = (site / "index.html").read_text()
    assert pages == {path.stem for path in site.glob("*.html")} - {"pyflowk", "flowk_h", "headers", "examples"}
    assert all(f'href="{page}.html"' in index for page in pages)


def test_a_link_to_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pdoc")
    monkeypatch.syspath_prepend(DOCS)
    render = tool_at("docs/render.py")
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y">b</a> <a href="#x">x</a> <a href="#z">z</a></p>')
    (tmp_path / "b.html").write_text('<p id="w"><a href="a.html#x">a</a> <a href="c.html">c</a></p>')
    ends = sorted(fault.partition(" links to ")[2].partition(",")[0] for fault in render.dead_links(tmp_path))
    assert ends == ["#z", "b.html#y", "c.html"]
    assert len(render.dead_links(tmp_path, ["c.html"])) == 2  # the page of a module that cannot be imported here


def test_the_page_on_speed_has_the_table_of_the_results(site: Path) -> None:
    page = (site / "speed.html").read_text()
    summary = (ROOT / "bench" / "RESULTS.md").read_text().partition("## Summary")[2].partition("\n## ")[0]
    works = re.findall(r"^\| (?!work)([^|]+?) \|", summary, re.MULTILINE)
    assert len(works) >= 10 and all(f"<td>{work}</td>" in page for work in works)


def test_a_link_to_nowhere_fails_the_rendering(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    code = f"""if True:
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(DOCS)!r})
        import render
        render.speed_table = lambda: "[a file](bench/RESULTS.md)"
        render.render(Path({str(tmp_path / "out")!r}))"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "speed.html links to bench/RESULTS.md, which is not there"


PICTURES = tool_at("docs/mask_pictures.py").pictures()


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_masked_softmax_masks(name: str) -> None:
    picture = PICTURES[name]
    y = pyflowk.masked_softmax(np.zeros(picture.masked.shape, np.float32), **picture.options)
    assert np.array_equal(y == 0, picture.masked)


def test_every_picture_is_on_the_page_of_masks() -> None:
    text = (DOCS / "pages" / "masks.md").read_text()
    names = re.findall(r"^\[\[(.*)\]\]$", text, re.MULTILINE)
    assert {name for line in names for name in line.split(", ")} == set(PICTURES)


def test_every_drawing_and_plot_is_on_a_page(site: Path) -> None:
    text = "".join(path.read_text() for path in (DOCS / "pages").glob("*.md"))
    for name in tool_at("docs/diagrams.py").DIAGRAMS:
        assert f"[[{name}]]" in text
    plots = {path.name for path in (ROOT / "bench" / "results").glob("*.svg")}
    assert plots == set(re.findall(r"!\[.*?\]\((\w+\.svg)\)", text))
    assert plots == {path.name for path in site.glob("*.svg")} != set()


def test_pages_name_functions_that_exist() -> None:
    named = {
        (path.stem, name)
        for path in [ROOT / "README.md", *(DOCS / "pages").glob("*.md")]
        for name in re.findall(r"pyflowk\.(\w+)", path.read_text())
    }
    known = {*pyflowk.__all__, "memory", "torch", "jax", "distributed", "NAME", "html"}
    assert len(named) > 50 and {(page, name) for page, name in named if name not in known} == set()


@pytest.mark.usefixtures("host_library")
def test_errors_of_the_page_on_troubleshooting_are_those_of_calls() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x = np.ones((2, 2), np.float32)
    calls = [
        lambda: pyflowk.permute(x, (1, 0), out=x),
        lambda: pyflowk.softmax(np.ones((2, 2), np.int64)),
        lambda: pyflowk.relu(torch.ones(2, requires_grad=True), out=torch.empty(2)),
        lambda: jax.jit(pyflowk.relu)(x),
        lambda: pyflowk.add([1.0, 2.0], torch.ones(2)),
    ]
    page = (DOCS / "pages" / "troubleshooting.md").read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    texts = re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE)
    assert len(texts) == len(calls)
    for text, call in zip(texts, calls):
        with pytest.raises((TypeError, ValueError), match=re.escape(text).replace(r"\.\.\.", ".*")):
            call()
