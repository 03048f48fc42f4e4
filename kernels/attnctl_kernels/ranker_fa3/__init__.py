"""History/candidate attention in JAX: Pallas kernels for Hopper, forward and backward."""
