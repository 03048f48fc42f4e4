"""JAX's interpreter of Mosaic GPU kernels, with what it lacks and these kernels use.

JAX 0.10 interprets threads, barriers, TMA copies and products of shared memory. Added here: accumulators that begin
with a value (``pl.run_state``), a product's left side in registers, ``plgpu.load``, and slices whose start is computed.
What raises: an access outside its buffer, a race between warp groups, a barrier whose phases a warp group does not see
through.
"""

import contextlib
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

interpret_call = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret.interpret_pallas_call")

from jax._src import callback  # noqa: E402 - only where there is the interpreter
from jax._src.pallas.mosaic.interpret import thread_map  # noqa: E402
from jax._src.pallas.mosaic.interpret.race_detection_state import RaceDetectionState  # noqa: E402
from jax._src.pallas.mosaic_gpu import core as gpu_core  # noqa: E402
from jax._src.pallas.mosaic_gpu import primitives  # noqa: E402
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, jaxpr_interpret, params  # noqa: E402
from jax._src.state import discharge  # noqa: E402
from jax._src.state import primitives as state_primitives  # noqa: E402
from jax._src.state import types as state_types  # noqa: E402

if not hasattr(jaxpr_interpret, "_get_index_for_barrier_allocation_key"):
    pytest.skip("written for the interpreter of JAX 0.10", allow_module_level=True)

TOKEN = gpu_callbacks.TOKEN_SHAPE_DTYPE


class Interpreter(jaxpr_interpret.JaxprInterpreter):
    def interpret(self, jaxpr, token, *args):
        """Equation by equation: those that JAX cannot interpret here, the others there."""
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))

        def read(atom):
            return atom.val if hasattr(atom, "val") else values[atom]

        for eqn in jaxpr.eqns:
            inputs = [read(each) for each in eqn.invars]
            match eqn.primitive:
                case discharge.run_state_p:
                    token, outputs = self._run_state(eqn, token, inputs)
                case primitives.load_p | state_primitives.get_p:
                    token, outputs = self._load(eqn, token, inputs)
                case primitives.wgmma_ref_p:
                    token, outputs = self._wgmma(eqn, token, inputs)
                case gpu_core.layout_cast_p:
                    outputs = inputs
                case _:
                    free = list(dict.fromkeys(each for each in eqn.invars if not hasattr(each, "val")))
                    alone = jaxpr.replace(
                        constvars=[], invars=free, eqns=[eqn], outvars=list(eqn.outvars), debug_info=None
                    )
                    token, outputs = super().interpret(alone, token, *map(read, free))
            values.update(zip(eqn.outvars, outputs, strict=True))
        return token, [read(each) for each in jaxpr.outvars]

    def _run_state(self, eqn, token, inputs):
        body = eqn.params["jaxpr"]
        refs, created = [], []
        for outer, inner, value in zip(eqn.invars, body.invars, inputs, strict=True):
            key = value
            if not isinstance(outer.aval, state_types.AbstractRef):
                token, key = self._allocate(token, value)
                created.append((inner, key))
            refs.append(key)
        token, _ = self.interpret(body, token, *refs)
        outputs = list(refs)
        for inner, key in created:
            token, outputs[body.invars.index(inner)] = self._read(token, key, (), inner.aval.inner_aval)
            token = self._free(token, key)
        return token, outputs

    def _load(self, eqn, token, inputs):
        ref, *leaves = inputs
        token, value = self._read(token, ref, jax.tree.unflatten(eqn.params["tree"], leaves), eqn.outvars[0].aval)
        return token, [value]

    def _wgmma(self, eqn, token, inputs):
        acc, a, b, *leaves = inputs
        trees = [eqn.params[f"{name}_transforms_tree"] or jax.tree.structure([]) for name in ("acc", "a", "b")]
        _, of_a, of_b = jax.tree.unflatten(jax.tree_util.treedef_tuple(trees), leaves)
        aval = eqn.invars[0].aval.inner_aval
        (rows, columns), depth = aval.shape, _depth(eqn.invars[1].aval, of_a)
        if isinstance(eqn.invars[1].aval, state_types.AbstractRef):
            token, a = self._read(token, a, of_a, jax.ShapeDtypeStruct((rows, depth), eqn.invars[1].aval.dtype))
        token, b = self._read(token, b, of_b, jax.ShapeDtypeStruct((depth, columns), eqn.invars[2].aval.dtype))
        token, sums = self._read(token, acc, (), aval)
        sums += jnp.matmul(a, b, preferred_element_type=jnp.float32)
        token, _ = gpu_callbacks.call_swap(
            token=token,
            result_shape_and_dtype=aval,
            device_id=jnp.int32(self.device_info.device_id),
            grid_point_coords=self.grid_point_coords,
            thread_id=self.thread_id,
            allocation_key_as_array=acc,
            transforms=(),
            val=sums,
            mask=None,
        )
        return token, []

    def _allocate(self, token, value):
        token, request = gpu_callbacks.call_make_allocation_request_array(
            token=token,
            device_id=jnp.int32(self.device_info.device_id),
            memory_space_id=gpu_callbacks.get_memory_space_idx(gpu_core.MemorySpace.REGS),
            thread_id=jnp.int32(self.thread_id),
        )
        return gpu_callbacks.call_allocate_buffer(token, *self._place(), request, value)

    def _free(self, token, key):
        return gpu_callbacks.call_deallocate_buffer(token, *self._place(), key)

    def _read(self, token, key, transforms, aval):
        return callback.io_callback(_read, (TOKEN, aval), token, *self._place(), key, transforms)

    def _place(self):
        return jnp.int32(self.device_info.device_id), self.grid_point_coords, self.thread_id


def _depth(aval, transforms):
    if not isinstance(aval, state_types.AbstractRef):
        return aval.shape[1]
    return state_types.TransformedRef(aval, transforms).type.shape[1]


def _read(token, device, point, thread, key, transforms):  # noqa: PLR0917
    transforms = list(gpu_callbacks._remove_noop_transforms(transforms))
    transposed = bool(transforms) and isinstance(transforms[-1], state_types.TransposeTransform)
    if transposed:
        transforms.pop()
    token, value = gpu_callbacks._get(token, device, point, thread, key, jax.tree.map(int, tuple(transforms)))
    return token, value.T if transposed else value


def evaluate(jaxpr, consts, *args):
    """Run a thread's program an equation at a time: JAX would compile it for each thread of each block anew."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    for eqn in jaxpr.eqns:
        inputs = [each.val if hasattr(each, "val") else values[each] for each in eqn.invars]
        values.update(zip(eqn.outvars, _apply(eqn, inputs), strict=True))
    return [each.val if hasattr(each, "val") else values[each] for each in jaxpr.outvars]


def _apply(eqn, inputs):
    given = eqn.params
    match eqn.primitive.name:
        case "io_callback":
            return jax.tree.leaves(given["callback"](*inputs))
        case "pjit" | "jit":
            return evaluate(given["jaxpr"].jaxpr, given["jaxpr"].consts, *inputs)
        case "cond":
            branch = given["branches"][int(np.clip(inputs[0], 0, len(given["branches"]) - 1))]
            return evaluate(branch.jaxpr, branch.consts, *inputs[1:])
        case "while":
            of_cond, of_body = inputs[: given["cond_nconsts"]], inputs[given["cond_nconsts"] :][: given["body_nconsts"]]
            carry = inputs[given["cond_nconsts"] + given["body_nconsts"] :]
            while evaluate(given["cond_jaxpr"].jaxpr, given["cond_jaxpr"].consts, *of_cond, *carry)[0]:
                carry = evaluate(given["body_jaxpr"].jaxpr, given["body_jaxpr"].consts, *of_body, *carry)
            return carry
        case _:
            outputs = eqn.primitive.bind(*inputs, **given)
            return outputs if eqn.primitive.multiple_results else [outputs]


def _watched(states, **given):
    states.append(RaceDetectionState(**given))
    return states[-1]


def interpreted(function, *args):
    """The result of ``function``, with the Mosaic GPU kernels that it calls interpreted."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(jaxpr_interpret, "JaxprInterpreter", Interpreter))
        stack.enter_context(mock.patch.object(thread_map, "_run_jaxpr", evaluate))
        states = []  # one per kernel
        stack.enter_context(mock.patch.object(gpu_callbacks, "RaceDetectionState", partial(_watched, states)))
        given = params.InterpretGPUParams(detect_races=True, out_of_bounds_reads="raise")
        stack.enter_context(params.force_gpu_interpret_mode(given))
        try:
            result = jax.block_until_ready(jax.jit(function)(*args))
            assert states
            assert not any(each.races_found for each in states)
        finally:
            interpret_call.reset_gpu_interpret_mode_state()
    return result
