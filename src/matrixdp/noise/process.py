"""What tells a process from those that were forked from it."""

import os

__all__ = ["current_process"]


class _Token:
    """An object that a forked child replaces by another."""

    current = object()

    @classmethod
    def renew(cls) -> None:
        """Replace the object."""
        cls.current = object()


if hasattr(os, "register_at_fork"):  # systems without fork do not have it
    os.register_at_fork(after_in_child=_Token.renew)


def current_process() -> tuple[int, object]:
    """Return what equals the same of this process alone.

    The number that the system gives is not enough, as another namespace may give it again; nor is
    the token, as a fork by foreign code does not renew it.

    Examples
    --------
    >>> current_process() == current_process()
    True
    """
    return os.getpid(), _Token.current
