"""What tests ask of the installed JAX; imported only where there is one."""

from jax.experimental.pallas.ops.gpu import attention_mgpu

from attnctl_kernels.pallas_mgpu.launch import TargetVersions

if attention_mgpu.cuda_versions is None:  # the kernel asks which CUDA it is compiled for
    attention_mgpu.cuda_versions = TargetVersions


def refusal(call, *args):
    """What upstream says where it refuses, below the module's name as in a traceback; None if it does not refuse."""
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return f"{attention_mgpu.__file__}\n{type(error).__name__}: {error}"
    return None
