"""The command line: parse, call, print. Nothing is computed here."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
