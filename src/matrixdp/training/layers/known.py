"""Facts about the layers of a program, found by its check, that every batch is held to."""

from dataclasses import dataclass, field
from fractions import Fraction

__all__ = ["Known"]


@dataclass
class Known:
    """What is known of a program.

    Attributes
    ----------
    rows : dict of str to set of pairs of Fraction and int
        How many rows for each example a layer was seen with, and how many axes they had.
    shared : dict of str to tuple of bool
        For each layer that returned something without rows, as two sizes of batches tell: whether
        that was so at its first call, its second one, and so on.
    expanded : set of str
        The layers whose own weights are expanded to all rows; those of others are not.
    apart : set of str
        The layers of whose tensors without rows something was made together with others that have
        no rows either. Elsewhere one row is not taken for none.
    met : set of tuples of str, str and int
        The layers whose tensors without rows met ones that have rows, the operations, and how many
        axes the results had.
    complete : bool
        Whether nothing else may be met.
    """

    rows: dict[str, set[tuple[Fraction, int]]] = field(default_factory=dict)
    shared: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    expanded: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    met: set[tuple[str, str, int]] = field(default_factory=set)
    complete: bool = False
