"""``python -m matrixdp``: the command line."""

import sys

from matrixdp_command import main

if __name__ == "__main__":
    sys.exit(main())
