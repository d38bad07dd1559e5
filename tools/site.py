#!/usr/bin/env python3
"""Makes a site of the documents: tools/site.py DIR

README.md becomes index.html, docs/NAME.md NAME.html, and the Chinese pages the same below
zh/. docs/README.md (docs/zh/README.md) is the list of pages at the left. cmark-gfm turns
Markdown into HTML; anchors are those of GitHub, so links work here and there. Nothing is
loaded from elsewhere, and nothing runs in the browser. Ends with 1 when a link leads
nowhere."""

import html
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parent))
import markdown_text as md

ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    "en": {"here": "On this page", "menu": "Documents", "other": "中文", "home": "Overview"},
    "zh": {"here": "本页内容", "menu": "文档", "other": "English", "home": "概览"},
}
ALONE = {"CONTRIBUTING.md": "contributing.html", "CHANGELOG.md": "changelog.html"}
CONTENTS = {"en": Path("docs/README.md"), "zh": Path("docs/zh/README.md")}


@dataclass
class Page:
    source: Path  # relative to the project
    target: str  # relative to the site
    language: str
    title: str


def target_of(path):
    """Where a file of the project stands in the site."""
    text = path.as_posix()
    if text in ("README.md", "README.zh.md"):
        return "index.html" if text == "README.md" else "zh/index.html"
    if text in ALONE:
        return ALONE[text]
    if path in CONTENTS.values():
        return "documents.html" if path == CONTENTS["en"] else "zh/documents.html"
    if text.startswith("docs/"):
        text = text[len("docs/") :]
        return re.sub(r"\.md$", ".html", text)
    return f"files/{text}"


def all_pages():
    pages = {}
    sources = [p for p in (Path("README.md"), Path("README.zh.md")) if (ROOT / p).exists()]
    sources += [Path(name) for name in ALONE if (ROOT / name).exists()]
    sources += sorted(p.relative_to(ROOT) for p in (ROOT / "docs").rglob("*.md"))
    for source in sources:
        language = "zh" if source.name.endswith(".zh.md") or "zh" in source.parts else "en"
        _, _, title, _ = next(md.anchored_headings(md.read_lines(ROOT / source)))
        pages[source] = Page(source, target_of(source), language, title)
    return pages


def relative(page, target):
    """An address in the site, as seen from a page."""
    return "../" * page.target.count("/") + target


def contents_of(language, pages):
    """[(title of the group, [(title, page)])], from the list of documents."""
    path = CONTENTS[language]
    if path not in pages:
        return []
    groups, lines = [], md.read_lines(ROOT / path)
    for line in lines:
        heading = md.HEADING.match(line)
        if heading and len(heading.group(1)) == 2:
            groups.append((heading.group(2), []))
        item = re.match(r"- \[([^\]]+)\]\(([^)]+)\)", line)
        if item and groups:
            groups[-1][1].append((item.group(1), pages[md.resolve(path, item.group(2))]))
    return groups


def translation_of(page, pages):
    for english, chinese in [(Path("README.md"), Path("README.zh.md"))] + [
        (p, Path("docs/zh") / p.name) for p in pages if p.parent == Path("docs")
    ]:
        if page.source == english:
            return pages.get(chinese)
        if page.source == chinese:
            return pages.get(english)
    return None


# -- a page ----------------------------------------------------------------------------------


def body_of(page, pages, files):
    """The page's HTML: headings with anchors, links to places of the site."""
    lines = md.read_lines(ROOT / page.source)
    headings = list(md.anchored_headings(lines))
    command = ["cmark-gfm", "--extension", "table", "--extension", "autolink", "--unsafe"]
    text = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    ).stdout
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    following = iter(headings)

    def with_anchor(match):
        anchor = html.escape(next(following)[3])
        return (
            f'<h{match.group(1)} id="{anchor}">{match.group(2)}'
            f'<a class="anchor" href="#{anchor}" aria-hidden="true">#</a></h{match.group(1)}>'
        )

    def with_place(match):
        target = unquote(html.unescape(match.group(2)))  # cmark-gfm encodes Chinese
        if md.is_external(target):
            return match.group(0)
        if target.startswith("#"):
            return f'{match.group(1)}="{html.escape(target)}"'
        path = md.resolve(page.source, target)
        if path not in pages:
            files.add(path)
        place = relative(page, target_of(path))
        if "#" in target:
            place += "#" + target.split("#", 1)[1]
        return f'{match.group(1)}="{html.escape(place)}"'

    text = re.sub(r"<h([1-6])>(.*?)</h\1>", with_anchor, text, flags=re.S)
    text = re.sub(r'\b(href|src)="([^"]*)"', with_place, text)
    text = text.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    return text, headings


def navigation(page, groups):
    words = WORDS[page.language]
    home = "index.html" if page.language == "en" else "zh/index.html"

    def item(title, target):
        current = ' aria-current="page"' if target == page.target else ""
        return f'<li><a href="{relative(page, target)}"{current}>{html.escape(title)}</a></li>'

    # on a phone the list is folded; a box that is ticked unfolds it without a script
    parts = [
        f'<input type="checkbox" id="menu"><label for="menu">☰ {words["menu"]}</label>'
        f'<div class="pages"><ul>{item(words["home"], home)}</ul>'
    ]
    for title, members in groups:
        items = "".join(item(name, member.target) for name, member in members)
        parts.append(f'<div class="title">{html.escape(title)}</div><ul>{items}</ul>')
    return "".join(parts) + "</div>"


def on_this_page(page, headings):
    items = "".join(
        f'<li><a href="#{html.escape(anchor)}">{html.escape(text.replace("`", ""))}</a></li>'
        for _, level, text, anchor in headings
        if level == 2
    )
    return f'<div class="title">{WORDS[page.language]["here"]}</div><ul>{items}</ul>'


def turn(page, groups):
    """Links to the page before and the page after."""
    order = [(name, member) for _, members in groups for name, member in members]
    at = next((i for i, (_, member) in enumerate(order) if member is page), None)
    if at is None:
        return ""
    links = []
    for i, form in ((at - 1, "← {}"), (at + 1, "{} →")):
        if 0 <= i < len(order):
            name, member = order[i]
            address = relative(page, member.target)
            links.append(f'<a href="{address}">{form.format(html.escape(name))}</a>')
        else:
            links.append("<span></span>")
    return f'<div class="turn">{"".join(links)}</div>'


def whole(page, pages, groups, files):
    body, headings = body_of(page, pages, files)
    other = translation_of(page, pages)
    switch = ""
    if other:
        words = WORDS[page.language]["other"]
        switch = (
            f'<a class="language" lang="{other.language}" hreflang="{other.language}"'
            f' href="{relative(page, other.target)}">{words}</a>'
        )
    home = "index.html" if page.language == "en" else "zh/index.html"
    title = page.title if page.title == "Trefoil" else f"{page.title} · Trefoil"
    return f"""<!DOCTYPE html>
<html lang="{page.language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<link rel="stylesheet" href="{relative(page, 'site.css')}">
</head>
<body>
<header><a class="name" href="{relative(page, home)}">Trefoil</a>{switch}</header>
<div class="frame">
<nav>{navigation(page, groups)}</nav>
<main>
{body}{turn(page, groups)}
</main>
<nav class="here">{on_this_page(page, headings)}</nav>
</div>
</body>
</html>
"""


# -- the site --------------------------------------------------------------------------------


def dead_links(directory):
    """What pages of the site refer to and is not in it."""
    ids = {}
    texts = {p: p.read_text(encoding="utf-8") for p in sorted(directory.rglob("*.html"))}
    for path, text in texts.items():
        ids[path.resolve()] = {html.unescape(i) for i in re.findall(r'\bid="([^"]*)"', text)}
    for path, text in texts.items():
        for address in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            address = unquote(html.unescape(address))
            if md.is_external(address):
                continue
            name, _, anchor = address.partition("#")
            place = (path.parent / name).resolve() if name else path.resolve()
            if not place.exists() or (anchor and anchor not in ids.get(place, set())):
                yield f"{path.relative_to(directory)}: '{address}' leads nowhere"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory, pages, files = Path(sys.argv[1]), all_pages(), set()
    groups = {language: contents_of(language, pages) for language in WORDS}
    if directory.exists():
        if any(directory.iterdir()) and not (directory / "site.css").exists():
            sys.exit(f"site: '{directory}' has other files in it: name a new directory")
        shutil.rmtree(directory)
    for page in pages.values():
        path = directory / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(whole(page, pages, groups[page.language], files), encoding="utf-8")
    shutil.copy(ROOT / "tools/site.css", directory / "site.css")
    for source in sorted(files):
        if (ROOT / source).is_file():
            place = directory / target_of(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
    dead = list(dead_links(directory))
    print(*dead, sep="\n", end="\n" if dead else "")
    if dead:
        sys.exit(1)
    print(f"site: {len(pages)} pages, {directory / 'index.html'}")


if __name__ == "__main__":
    main()
