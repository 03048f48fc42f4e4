"""The CUDA stream that JAX launches on, which it does not tell.

An XLA custom call is told. One is registered whose handler, called by XLA while it launches a program, keeps the stream
that it is given. The structures are the head of XLA's stable C interface (``xla/ffi/api/c_api.h``, which comes with
jaxlib); only fields that are read or written here are named.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

_TARGET = "attnctl_launch_stream"
_METADATA = 1  # the kind of extension in which XLA asks a handler for its version, once


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int), ("next", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("head", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


class _StreamRequest(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class _Api(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("version", _Version),
        ("before_get_stream", ctypes.c_void_p * 5),
        ("get_stream", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_StreamRequest))),
    )


class _CallFrame(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.POINTER(_MetadataExtension)),
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
    )


_found: list[tuple[int | None, int]] = []  # stream, and the thread that launched


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_CallFrame))
def _handler(frame: Any) -> None:
    call = frame.contents
    api = call.api.contents
    if call.extensions and call.extensions.contents.head.kind == _METADATA:
        version = call.extensions.contents.metadata.contents.version
        version.major, version.minor = api.version.major, api.version.minor
        return
    request = _StreamRequest(struct_size=ctypes.sizeof(_StreamRequest), context=call.context)
    api.get_stream(ctypes.byref(request))  # an error leaves the stream empty
    _found.append((request.stream, threading.get_ident()))


def launch_stream(device: Any) -> int:
    """The stream on which JAX launches its programs on ``device``, as a number.

    Raises:
        RuntimeError: programs are not launched by the calling thread before the call returns, so that what PyTorch
            puts on the stream would not be in order with them; or XLA names no stream.
    """
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(_handler), platform="CUDA")
    result = jax.ShapeDtypeStruct((), jnp.float32)
    ask = jax.jit(jax.ffi.ffi_call(_TARGET, result, has_side_effect=True))
    anything = jax.device_put(jnp.float32(0), device)
    _found.clear()
    answer = ask(anything)
    launched = _found[:]
    answer.block_until_ready()
    if not launched or launched[0][1] != threading.get_ident():
        raise RuntimeError("JAX launches programs from a thread of its own: attnctl cannot time them")
    if not launched[0][0]:
        raise RuntimeError("XLA names no stream for a custom call")
    return int(launched[0][0])
