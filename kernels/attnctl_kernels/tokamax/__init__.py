"""Tokamax's attention for GPUs: Pallas Mosaic GPU kernels for Hopper and Blackwell, and a Pallas Triton backward."""
