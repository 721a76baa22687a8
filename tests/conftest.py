"""What holds for every test: properties are tried on the same examples every time, untimed."""

from hypothesis import settings

settings.register_profile("matrixdp", deadline=None, derandomize=True)
settings.load_profile("matrixdp")
