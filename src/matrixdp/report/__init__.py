"""A page for the person who signs: what files guarantee, proven again, in words and numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
