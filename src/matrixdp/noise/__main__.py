"""``python -m matrixdp.noise``: prove the noise table; with ``make FILE``, make it anew first."""

import sys

from matrixdp.noise.specification.certificate import main

__all__ = ["main"]

if __name__ == "__main__":
    main(sys.argv[1:])
