"""The program ``python -m matrixdp_experiments``."""

import sys

from matrixdp_experiments.command import main

if __name__ == "__main__":
    sys.exit(main())
