"""The kernel of NVIDIA GPUs: its source, how it is compiled, and how it is launched."""
