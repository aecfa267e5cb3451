"""What the site needs beyond MkDocs: drawings, and checks of what MkDocs itself passes over.

A ```mermaid fence holds a sequence diagram in the part of Mermaid's language that `Drawing` knows. GitHub draws it
with Mermaid; here it becomes an SVG in the page, so that the site needs no script for it.
"""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from textwrap import wrap
from typing import Any

COLUMN = 190
ROW = 44
TOP = 58
LINE = 15
LETTERS_PER_COLUMN = 24
BOX = 150

PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?")
MESSAGE = re.compile(r"(\w+)(-->>|->>)(\w+): (.+)")
NOTE = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")


class Drawing:
    """A sequence diagram as an SVG: a column for each participant, a row for each message or note."""

    def __init__(self, source: str) -> None:
        self._columns: dict[str, int] = {}
        self._heads: list[str] = []
        self._parts: list[str] = []
        self._y = TOP + 12
        first, *lines = (line.strip() for line in source.strip().splitlines())
        if first != "sequenceDiagram":
            raise ValueError(f"only sequence diagrams are drawn, not {first}")
        for line in lines:
            if line:
                self._add(line)

    def _add(self, line: str) -> None:
        if found := PARTICIPANT.fullmatch(line):
            self._columns[found[1]] = len(self._columns)
            self._heads.append(found[2] or found[1])
        elif found := MESSAGE.fullmatch(line):
            self._message(self._x(found[1]), self._x(found[3]), found[4], dashed=found[2] == "-->>")
        elif found := NOTE.fullmatch(line):
            self._note(self._x(found[1]), self._x(found[2] or found[1]), found[3])
        else:
            raise ValueError(f"a drawing has no line such as {line!r}")

    def _x(self, participant: str) -> int:
        return 90 + COLUMN * self._columns[participant]

    def _text(self, x: float, text: str, columns: int, *, below: bool) -> None:
        """Write text in the middle of x, wrapped; `below` a line, or above the next one."""
        for line in wrap(text, LETTERS_PER_COLUMN * max(1, columns)):
            self._y += LINE
            self._parts.append(f'<text x="{x}" y="{self._y}" text-anchor="middle">{escape(line)}</text>')
        self._y += 7 if below else 5

    def _message(self, start: int, end: int, text: str, *, dashed: bool) -> None:
        style = ' stroke-dasharray="5 4"' if dashed else ""
        columns = abs(end - start) // COLUMN
        self._y += 8
        self._text((start + end) / 2 if columns else start + 60, text, columns, below=False)
        if columns:
            path = f"M{start},{self._y} H{end}"
        else:
            path = f"M{start},{self._y} h40 v12 H{start}"
        self._parts.append(f'<path d="{path}"{style} marker-end="url(#arrow)"/>')
        self._y += 4 if columns else 16

    def _note(self, first: int, last: int, text: str) -> None:
        top = self._y + 10
        at = len(self._parts)
        columns = (last - first) // COLUMN + 1
        self._y = top + 2
        self._text((first + last) / 2, text, columns, below=True)
        left, width = first - 82, last - first + 164
        self._parts.insert(
            at, f'<rect class="note" x="{left}" y="{top}" width="{width}" height="{self._y - top}" rx="3"/>'
        )
        self._y += 4

    def svg(self) -> str:
        """Return the drawing. Its colours are those of the page's text."""
        width, height = COLUMN * len(self._columns), self._y + 24
        lines = []
        for head, x in zip(self._heads, map(self._x, self._columns), strict=True):
            lines.append(f'<path class="life" d="M{x},{TOP} V{height - 4}"/>')
            lines.append(f'<rect x="{x - BOX / 2}" y="14" width="{BOX}" height="{TOP - 14}" rx="4"/>')
            rows = wrap(head, 20)
            for number, text in enumerate(rows):
                y = 41 + LINE * (number - (len(rows) - 1) / 2)
                lines.append(f'<text x="{x}" y="{y}" text-anchor="middle" class="head">{escape(text)}</text>')
        return (
            f'<svg class="drawing" role="img" viewBox="0 0 {width} {height}" style="max-width:{width}px;width:100%" '
            'xmlns="http://www.w3.org/2000/svg"><defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z"/>'
            "</marker></defs><style>.drawing{color:var(--md-typeset-color,#222);font:12px sans-serif}"
            ".drawing text{fill:currentColor}.drawing .head{font-weight:bold}"
            ".drawing path,.drawing rect{stroke:currentColor;fill:none}.drawing .life{opacity:.3}"
            ".drawing defs path{fill:currentColor}.drawing .note{fill:currentColor;fill-opacity:.07;stroke-opacity:.4}"
            f"</style>{''.join(lines + self._parts)}</svg>"
        )


def draw(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """Return what stands in the place of a fence; the signature is superfences'."""
    return Drawing(source).svg()


CLI = "reference/cli"
ICON = "assets/icon.svg"


def on_config(config: Any) -> Any:
    """Have fences drawn, and list the page of each command below the page of all."""
    pages = sorted((Path(config["docs_dir"]) / CLI).glob("*.md"))
    (reference,) = (each["Reference"] for each in config["nav"] if "Reference" in each)
    below = [f"{CLI}.md", *(f"{CLI}/{each.name}" for each in pages)]
    reference[reference.index(f"{CLI}.md")] = {"Command line": below}
    fences = config["mdx_configs"].setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "mermaid", "class": "mermaid", "format": draw}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Give the site the console's icon."""
    from mkdocs.structure.files import File

    icon = Path(config["config_file_path"]).parents[1] / "raftlog/admin/console/icon.svg"
    files.append(File.generated(config, ICON, abs_src_path=str(icon)))
    return files


SEARCH_BOOSTS = {
    "tutorial/": 2,
    "howto/": 4,
    "explanation/decisions/": 0.1,
    "explanation/inside/": 0.2,
    "explanation/kafka": 0.5,
    "reference/cli": 0.5,
}
"""By the beginning of its path, how much a page counts in a search: guides come before why something is as it is."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    """Weigh the page in searches."""
    for start, boost in SEARCH_BOOSTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": boost}


def on_page_content(html: str, page: Any, config: Any, files: Any) -> None:
    """Fail on a reference that nobody defined, which Markdown shows as it is written. Raises RuntimeError."""
    text = re.sub(r"<(code|svg).*?</\1>", "", html, flags=re.DOTALL)
    if found := re.search(r"\[[^\]<]+\]\[[^\]<]*\]", text):
        raise RuntimeError(f"{page.file.src_path}: nobody defined {found[0]}")


class _Loads(HTMLParser):
    """Collects what a page loads by itself from elsewhere; links that a reader may follow are none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        source = given.get("src") or (given.get("href") if tag == "link" else "") or ""
        if source.startswith(("http:", "https:", "//")) and given.get("rel") != "canonical":
            self.found.append(source)


def on_post_build(config: Any) -> None:
    """Fail if a page would load something from elsewhere. Raises RuntimeError."""
    for page in sorted(Path(config["site_dir"]).rglob("*.html")):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        if loads.found:
            raise RuntimeError(f"{page} loads {loads.found} from elsewhere")
