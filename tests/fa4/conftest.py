"""flash-attn-4 reads where its cache is once per process: one folder for the whole session."""

import pytest


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(folder))
        yield folder
