"""JAX's Pallas Mosaic GPU attention (`jax.experimental.pallas.ops.gpu.attention_mgpu`) and its TuningConfig."""
