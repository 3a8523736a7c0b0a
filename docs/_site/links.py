"""Links that leave docs/: on the site their files stand under repository/, notebooks as pages.

A directory has no page, so its path is written out. Other links are left to MkDocs, which refuses
them. The journal and the changelog keep the text of links to files that have moved.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[2]
BESIDE = "repository"
HISTORY = ("results/LOG.md", "CHANGELOG.md")
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?!\w+:|#)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
PICTURE = re.compile(r"(?P<start>!\[[^\]]*\])\((?P<path>[^)\s]*assets/\w+)\.png\)")


def path_of(page: str) -> str:
    """The path in the repository of a page of the site.

    Examples:
        >>> path_of("fit.md"), path_of("repository/results/LOG.md")
        ('docs/fit.md', 'results/LOG.md')
    """
    beside = page.removeprefix(f"{BESIDE}/")
    return f"docs/{page}" if beside == page else beside


def page_of(path: str) -> str:
    """The page, or file, of the site that has a file of the repository.

    Examples:
        >>> page_of("docs/fit.md"), page_of("notebooks/es_wsd.ipynb")
        ('fit.md', 'repository/notebooks/es_wsd.md')
    """
    inside = path.removeprefix("docs/")
    return inside if inside != path else f"{BESIDE}/{path}".replace(".ipynb", ".md")


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path_of(page)), link))


def on_files(files: Any, config: Any) -> Any:
    """Add every file that a page links to, directly or indirectly."""
    left = [file for file in files if file.is_documentation_page()]
    while left:
        page = left.pop()
        for link in LINK.finditer(page.content_string):
            path = target(page.src_uri, link["path"])
            known = files.get_file_from_path(page_of(path))
            if not known and not path.startswith("docs/") and (ROOT / path).is_file():
                left += [new for new in _added(files, path, config) if new.src_uri.endswith(".md")]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with its links as the site has them."""

    def rewritten(link: re.Match[str]) -> str:
        path = target(page.file.src_uri, link["path"])
        if (ROOT / path).is_dir():
            return f"{link['text']} (`{path}/`)"
        if not (ROOT / path).is_file():
            return link["text"] if path_of(page.file.src_uri) in HISTORY else link[0]
        here = posixpath.dirname(page.file.src_uri)
        return f"[{link['text']}]({posixpath.relpath(page_of(path), here)}{link['anchor'] or ''})"

    if page.file.src_uri.startswith(f"{BESIDE}/"):
        page.meta["search"] = {"boost": 0.1}  # the pages of docs/ are found first
    return PICTURE.sub(both_schemes, LINK.sub(rewritten, markdown))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The page of the site: landmarks have names of their own, and pictures load late.

    So a browser loads only the picture that the colour scheme shows.
    """
    search = 'data-md-component="search" role="dialog"'
    named = output.replace(search, f'{search} aria-label="Search"')
    contents = '<nav class="md-nav" aria-label="'  # of a heading, which may be that of a section
    named = named.replace(contents, f"{contents}On this page: ")
    return named.replace("<img alt=", '<img loading="lazy" alt=')


def both_schemes(picture: re.Match[str]) -> str:
    """The light and the dark picture, of which the theme shows one.

    Examples:
        >>> PICTURE.sub(both_schemes, "![Tokens](assets/equal_time.png)")
        '![Tokens](assets/equal_time.png#only-light)![Tokens](assets/equal_time-dark.png#only-dark)'
    """
    start, path = picture["start"], picture["path"]
    return f"{start}({path}.png#only-light){start}({path}-dark.png#only-dark)"


def _added(files: Any, path: str, config: Any) -> list[Any]:
    from mkdocs.structure.files import File

    if not path.endswith(".ipynb"):
        new = [File.generated(config, page_of(path), abs_src_path=str(ROOT / path))]
    else:
        from nbconvert import MarkdownExporter

        text, pictures = MarkdownExporter().from_filename(
            str(ROOT / path), {"output_files_dir": f"{PurePosixPath(path).stem}_files"}
        )
        text = text.replace('<table border="1" class="dataframe">', "<table>")  # as other tables
        text = text.replace("<th></th>", "<td></td>")
        new = [File.generated(config, page_of(path), content=text)]
        for name, data in pictures["outputs"].items():
            uri = posixpath.join(posixpath.dirname(page_of(path)), name)
            new.append(File.generated(config, uri, content=data))
    for file in new:
        files.append(file)
    return new
