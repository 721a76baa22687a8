"""``python -m matrixdp``: the command line."""

from matrixdp_command import start

if __name__ == "__main__":
    start()
