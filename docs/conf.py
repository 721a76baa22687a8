"""The documentation site: Sphinx over the repository, so that links mean what they mean elsewhere.

``make docs`` builds it. The source folder is the repository's root: a link from a page to a script,
a table or a notebook is the same relative path here as on a code host. `contents.yml` says which
pages there are and in which order; ``website`` holds the rest.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import matrixdp

WEBSITE = Path(__file__).parent / "website"
sys.path.insert(0, str(WEBSITE))
import docstrings  # noqa: E402
import links  # noqa: E402
import reference_pages  # noqa: E402

project = "matrixdp"
author = "The matrixdp developers"
copyright = author  # noqa: A001 (Sphinx wants this name)
version = release = matrixdp.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_external_toc",
]
root_doc = "docs/index"
external_toc_path = "docs/contents.yml"
include_patterns = [
    *("docs/*.md", "docs/tables/*.md", "docs/api/**.rst", "examples/*.ipynb"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
]
nitpicky = True
# The tables of the reference are also its navigation.
suppress_warnings = ["etoc.toctree"]
language = "en_GB"

# Pages: links to headings as code hosts spell them; notebooks are shown as they were saved.
myst_heading_anchors = 3
nb_execution_mode = "off"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Reference: a page for every public name, from its docstring.
templates_path = [str(WEBSITE / "templates")]
autosummary_generate = True
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
default_role = "py:obj"
numpydoc_show_class_members = False

# Looks: everything that a page loads is in the site.
html_theme = "pydata_sphinx_theme"
html_title = "matrixdp"
html_static_path = ["website/static"]
html_css_files = ["website.css"]
html_additional_pages = {"index": "first.html"}
html_copy_source = False
html_show_sourcelink = False
# Sections of one page have nothing to list.
html_sidebars: dict[str, list[str]] = {"docs/start": [], "docs/benchmarks": []}
html_theme_options = {
    "show_prev_next": True,
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def setup(app: Sphinx) -> None:
    """Write the pages of the reference, and resolve what Sphinx cannot."""
    reference_pages.write(app.srcdir / "docs" / "api")
    docstrings.connect(app)
    links.connect(app)
