"""Matrices, releases and strategies in files: formats, statements, atomic writing, streaming."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
