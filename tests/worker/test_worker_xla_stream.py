"""The custom call that learns JAX's stream, on the CPU: XLA accepts the handler, and calls it where it launches."""

import threading

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("torch")

import jax.numpy as jnp  # noqa: E402 - only where there is jax

from attnctl.worker import xla_stream  # noqa: E402 - likewise


def test_handler_speaks_the_interface_of_the_installed_xla():
    """Structures that do not fit would be refused when XLA asks for the version, or crash."""
    name = "attnctl_test_launch_stream"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(xla_stream._handler), platform="cpu")
    ask = jax.jit(jax.ffi.ffi_call(name, jax.ShapeDtypeStruct((), jnp.float32), has_side_effect=True))
    xla_stream._found.clear()
    ask(jnp.float32(0)).block_until_ready()
    ((stream, thread),) = xla_stream._found
    assert stream is None  # a CPU has none
    assert thread == threading.get_ident()


def test_without_a_gpu_no_stream_is_found():
    with pytest.raises((RuntimeError, jax.errors.JaxRuntimeError)):
        xla_stream.launch_stream(jax.devices("cpu")[0])
