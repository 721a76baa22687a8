"""Kernels for GPUs in Triton, and the capture of work as a CUDA graph."""
