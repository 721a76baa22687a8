"""The identity of the process: some values must not be used on in a forked copy of it.

A fork copies every object without asking it. A key that is used on both sides makes the same noise
twice; a budget that is spent on both sides is spent twice.
"""

import os

__all__ = ["current_process"]


class _ProcessToken:
    """An object that a forked child replaces by another."""

    current = object()

    @classmethod
    def renew(cls) -> None:
        """Replace the object."""
        cls.current = object()


if hasattr(os, "register_at_fork"):  # systems without fork do not have it
    os.register_at_fork(after_in_child=_ProcessToken.renew)


def current_process() -> tuple[int, object]:
    """Return a value that is equal only to the same value in the same process.

    The process number alone is not enough, because another namespace may use the same number. The
    token alone is not enough either, because a fork made by foreign code does not renew it.
    """
    return os.getpid(), _ProcessToken.current


def __dir__() -> list[str]:
    return __all__
