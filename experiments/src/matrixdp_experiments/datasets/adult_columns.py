"""The columns of Adult: their categories and their ranges, none of them taken from the records.

Categories are those that ``adult.names``, the description beside the data, lists. Ranges come from
that description or from what is generally known; each says which. A number outside of its range is
cut to it.
"""

import math
from dataclasses import dataclass

__all__ = ["COLUMNS", "WIDTH", "Category", "Number"]


@dataclass(frozen=True)
class Number:
    """A number, scaled to [0, 1] from its public range, if wanted by its logarithm."""

    low: int
    high: int
    logarithmic: bool = False

    def scaled(self, value: int) -> float:
        """Return the number on its scale.

        Examples
        --------
        >>> Number(0, 100).scaled(25), Number(0, 100).scaled(130)
        (0.25, 1.0)
        """
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        if not self.logarithmic:
            return part
        span = self.high - self.low
        return math.log1p(part * span) / math.log1p(span)


class Category:
    """A category, as one column of zeros and ones for each that exists."""

    def __init__(self, *names: str) -> None:
        self.indices = {name: index for index, name in enumerate(names)}


# In the order of the files.
_ATTRIBUTES: tuple[Number | Category, ...] = (
    # age: adult.names says that nobody is below 17; hardly anybody is above 90.
    Number(16, 90),
    # workclass
    Category(
        *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"),
        *("State-gov", "Without-pay", "Never-worked"),
    ),
    # fnlwgt, how many people a record stands for, in hundredths: about 200 million adults in a
    # survey of about 100,000 people are 200,000 on average, and five times that is a lot.
    Number(0, 1_000_000),
    # education
    Category(
        *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm"),
        *("Assoc-voc", "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate"),
        *("5th-6th", "Preschool"),
    ),
    # education-num: the 16 levels above, numbered from 1.
    Number(1, 16),
    # marital-status
    Category(
        *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
        *("Married-spouse-absent", "Married-AF-spouse"),
    ),
    # occupation
    Category(
        *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"),
        *("Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"),
        *("Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"),
        "Armed-Forces",
    ),
    # relationship
    Category("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    # race
    Category("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    # sex
    Category("Female", "Male"),
    # capital-gain and capital-loss: amounts in dollars of up to five digits. Most people have none,
    # and those of others differ by factors, which a logarithm keeps apart.
    Number(0, 99_999, logarithmic=True),
    Number(0, 99_999, logarithmic=True),
    # hours-per-week: a number of two digits, above 0 by adult.names.
    Number(0, 99),
    # native-country
    Category(
        *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
        *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba"),
        *("Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico"),
        *("Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan"),
        *("Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand"),
        *("Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong"),
        "Holand-Netherlands",
    ),
)


def _placed() -> tuple[tuple[tuple[int, Number | Category], ...], int]:
    """Return each attribute with its first column, and the number of all columns."""
    placed, width = [], 0
    for attribute in _ATTRIBUTES:
        placed.append((width, attribute))
        width += len(attribute.indices) if isinstance(attribute, Category) else 1
    return tuple(placed), width


COLUMNS, WIDTH = _placed()
