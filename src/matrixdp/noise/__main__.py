"""``python -m matrixdp.noise``: prove the noise tables; with ``make FOLDER``, make them first."""

import sys

from matrixdp.noise.proofs.shipped import main

__all__ = ["main"]

if __name__ == "__main__":
    main(sys.argv[1:])
