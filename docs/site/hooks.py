"""What MkDocs does not do by itself for this site.

- Pages that live outside docs/ (README, changelog, examples, ...) become pages of the site, and
  links to them, written so that they work in the repository, are turned to where they went.
- `policies/*` in the navigation stands for the pages of that folder.
- Formulas become MathML when the site is built: no script, no font, nothing to fetch.
- Each tutorial can be had as a notebook.
- The search takes a word with a hyphen for a word in a question, too.
"""

import html
import posixpath
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
from notebook import notebook_of

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "plain_loop": "A loop of your own",
    "torch_task": "A PyTorch module",
    "flower-app": "A Flower app",
    "nvflare-app": "An NVFlare job",
}
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "SECURITY.md": "project/security-policy.md",
    "CITATION.cff": "project/citation.md",
    "LICENSE": "project/licence.md",
    "examples/plain_loop.py": "examples/plain_loop.md",
    "examples/torch_task.py": "examples/torch_task.md",
    "examples/flower-app/README.md": "examples/flower-app.md",
}
"""Where a file of the repository, outside docs/, stands in the site."""

REFERENCE = {
    "src/bsfl/policies": "reference/policies.md#bsfl.",
    "src/bsfl/policy.py": "reference/policies.md#bsfl.",
    "src/bsfl/solvers": "reference/solvers.md#bsfl.solvers.",
    "src/bsfl/types.py": "reference/records.md#bsfl.",
}
"""Where the reference describes what a source file holds; the link's text, a name, follows."""

HYPHENS = re.compile(r"(QueryLexer\.termSeparator)=\w+\.tokenizer\.separator")
"""Where the search worker cuts a question at hyphens, whatever separator the index has."""

MARKS = re.compile(r"^```python .*$", re.MULTILINE)  # marks of a snippet, for its test
LINK = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\((?!https?://|mailto:|#)([^)#\s]*)(#[^)\s]*)?\)")
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def code_page(title, paths):
    """Return a page that shows files of the repository."""
    parts = [f"# {title}\n"]
    for path in paths:
        kind = {".py": "python", ".toml": "toml", ".cff": "yaml"}.get(path.suffix, "text")
        fence = f"````{kind}\n{path.read_text()}````\n"
        parts.append(f"`{path.relative_to(ROOT)}`\n\n{fence}")
    return "\n".join(parts)


def outside_pages():
    """Return the text of every page that is made of files outside docs/, by its place."""
    pages = {
        place: (ROOT / path).read_text() for path, place in OUTSIDE.items() if path.endswith(".md")
    }
    pages["project/licence.md"] = code_page("Licence", [ROOT / "LICENSE"])
    pages["project/citation.md"] = code_page("Citation", [ROOT / "CITATION.cff"])
    for name, title in EXAMPLES.items():
        folder, place = ROOT / "examples" / name, f"examples/{name}.md"
        files = [
            path
            for path in sorted(folder.rglob("*"))
            if path.suffix in {".py", ".toml"} and path.stat().st_size
        ]
        code = code_page(title, files or [folder.with_suffix(".py")])
        if place in pages:
            code = code.split("\n", 1)[1]  # the README has the title
        pages[place] = pages.get(place, "") + "\n" + code
    return pages


def on_config(config):
    config.nav = [expanded(entry, outside_pages()) for entry in config.nav]
    return config


def expanded(entry, outside):
    """Return an entry of the navigation in which `folder/*` is the list of its pages."""
    if not isinstance(entry, dict):
        return entry
    ((title, below),) = entry.items()
    if isinstance(below, str):
        return entry
    pages = []
    for item in below:
        if isinstance(item, str) and item.endswith("/*"):
            folder = item[:-2]
            there = {f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md")}
            there |= {place for place in outside if posixpath.dirname(place) == folder}
            pages += sorted(there, key=lambda place: (not place.endswith("README.md"), place))
        else:
            pages.append(expanded(item, outside))
    return {title: pages}


def on_files(files, config):
    for place, text in outside_pages().items():
        files.append(File.generated(config, place, content=text))
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        place = f"tutorials/{path.stem}.ipynb"
        files.append(File.generated(config, place, content=notebook_of(path.read_text())))
    return files


def on_page_markdown(markdown, page, config, files):
    place = page.file.src_uri
    if place == "index.md":
        page.meta["hide"] = ["navigation"]  # it would be a list of one
    if place.startswith("reference/"):
        page.meta["search"] = {"boost": 0.3}  # a page that explains comes before a signature
    if place.startswith("tutorials/"):
        title, _, rest = markdown.partition("\n")
        notebook = posixpath.basename(place).removesuffix(".md") + ".ipynb"
        markdown = f"{title}\n\n[As a notebook]({notebook}){{ .md-button download }}\n{rest}"
    origin = next((path for path, there in OUTSIDE.items() if there == place), f"docs/{place}")

    def turned(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        for source, there in REFERENCE.items():
            if path == source or path.startswith(source + "/"):
                return f"[{text}]({relative(there)}{text.strip('`')})"
        there = OUTSIDE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target and there:
            return f"[{text}]({relative(there)}{anchor})"
        return match[0]

    def relative(there):
        return posixpath.relpath(there, posixpath.dirname(place) or ".")

    return outside_code(MARKS.sub("```python", markdown), lambda text: LINK.sub(turned, text))


def outside_code(markdown, change):
    """Apply a change to what is not in a fenced block."""
    parts = re.split(r"(^(`{3,})[^\n]*\n.*?^\2[ ]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    text = []
    for number in range(0, len(parts), 3):
        text.append(change(parts[number]))
        text += parts[number + 1 : number + 2]
    return "".join(text)


def on_page_content(html_text, page, config, files):
    return MATH.sub(mathml, html_text)


def mathml(match):
    r"""Return a formula as MathML; limits stand below max and min as they do in TeX."""
    display = "block" if match[2] == "[" else "inline"
    latex = re.sub(r"\\arg(?![a-z])", r"\\mathrm{arg}\\,", html.unescape(match[3]))
    if display == "block":
        latex = re.sub(r"\\(max|min)_", r"\\\1\\limits_", latex)
    made = convert(latex, display=display)
    if unknown := re.search(r">\\[A-Za-z]+", made):
        raise PluginError(f"no MathML for {unknown[0][1:]} in {latex}")
    return made


def on_post_build(config):
    for path in Path(config.site_dir, "assets/javascripts/workers").glob("search.*.js"):
        path.write_text(HYPHENS.sub(r"\1=/\\s+/", path.read_text("utf-8")), "utf-8")
