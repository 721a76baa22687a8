"""How docstrings and signatures become pages of the reference."""

from typing import Any

from docutils import nodes
from numpy.typing import ArrayLike
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation

from matrixdp.sensitivity import SensitivitySet

# Signatures show what stands behind a name for several types; readers know it by the name.
ALIASES = {
    stringify_annotation(ArrayLike, "smart"): "~numpy.typing.ArrayLike",
    stringify_annotation(SensitivitySet, "smart"): "~matrixdp.sensitivity.SensitivitySet",
}


def connect(app: Sphinx) -> None:
    """Take part in a build."""
    app.connect("autodoc-process-signature", with_names_of_types)
    app.connect("autodoc-skip-member", skips)
    app.connect("missing-reference", to_name)


def with_names_of_types(*event: Any) -> tuple[str | None, str | None]:
    """Return a signature and its result with names for unions of types."""
    signature, returned = event[-2:]
    for written, name in ALIASES.items():
        signature = signature and signature.replace(written, name)
        returned = returned and returned.replace(written, name)
    return signature, returned


def skips(*event: Any) -> bool:
    """Return whether the reference leaves a member out: what other libraries define."""
    _app, _kind, name, member, skip, _options = event
    definition = getattr(member, "fget", None) or member
    module = getattr(definition, "__module__", None) or "matrixdp"
    return skip or name == "__init__" or not module.startswith("matrixdp")


def to_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Node | None:
    """Return a link to the only public name that ends in what docstring or signature says.

    Docstrings put parameters and code between the same marks as names, so that what is no public
    name is not a mistake.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip(".")
    found = env.domains.python_domain.find_obj(env, "", "", target, None, searchmode=1)
    homes = {entry.node_id: entry for _, entry in found}
    if len(homes) != 1:
        return text
    [entry] = homes.values()
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text)
