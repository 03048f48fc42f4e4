"""The three kernels: forward, dQ, and dK with dV."""
