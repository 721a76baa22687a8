"""Links of pages that Sphinx cannot resolve by itself."""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

# On a code host a link leads to a folder, or to a file that is no page here.
PAGES = {"README.md": "docs/index", "examples": "docs/tutorials"}


def connect(app: Sphinx) -> None:
    """Take part in a build."""
    app.connect("doctree-read", lead_to_pages)
    app.connect("doctree-read", trim_examples)


def lead_to_pages(app: Sphinx, document: nodes.document) -> None:
    """Lead links to folders to the pages about them, or take them away and leave their text."""
    for node in list(document.findall(addnodes.pending_xref)):
        if node["reftype"] != "myst":
            continue
        target = Path(app.srcdir, node["refdoc"]).parent.joinpath(node["reftarget"]).resolve()
        if node["refdomain"] == "doc":
            target = Path(app.srcdir, node["reftarget"]).with_suffix(".md")
        if not target.is_relative_to(app.srcdir):
            continue
        page = PAGES.get(target.relative_to(app.srcdir).as_posix())
        if page is not None:
            node.attributes |= {"refdomain": "doc", "reftarget": page, "reftargetid": None}
        elif target.is_dir():
            node.replace_self(node.children)


def trim_examples(_app: Sphinx, document: nodes.document) -> None:
    """Take the empty line from the end of an example, where doctests need one."""
    for block in list(document.findall(nodes.literal_block)):
        block.rawsource = block.astext().rstrip()
        block.children = [nodes.Text(block.rawsource)]
