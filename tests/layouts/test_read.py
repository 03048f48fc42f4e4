"""Block arrays in files: every form gives the same arrays, and whatever else a file holds is a fault."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.layouts.read import read_arrays
from attnctl_kernels.block_arrays import ALIASES, NAMES

ARRAYS = {
    "mask_block_cnt": np.array([[[1, 2]]], np.int32),
    "mask_block_idx": np.array([[[[0, 0], [0, 1]]]], np.int32),
}
SUFFIXES = (".npz", ".safetensors", ".pt", ".json")


def write(path, arrays, *, compressed=False):
    """The arrays in the form that the suffix names."""
    if path.suffix == ".npz":
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
    elif path.suffix == ".safetensors":
        path.write_bytes(safetensors(arrays))
    elif path.suffix == ".pt":
        torch.save({name: torch.from_numpy(each) for name, each in arrays.items()}, path)
    else:
        path.write_text(json.dumps({name: each.tolist() for name, each in arrays.items()}), encoding="utf-8")
    return path


def safetensors(arrays):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, each in arrays.items():
        dtype = {"int32": "I32", "int64": "I64"}[str(each.dtype)]
        stop = len(data) + each.nbytes
        header[name] = {"dtype": dtype, "shape": list(each.shape), "data_offsets": [len(data), stop]}
        data += each.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def assert_same(found, arrays):
    assert found.fault == ""
    assert found.arrays.keys() == arrays.keys()
    for name, each in arrays.items():
        assert found.arrays[name].dtype == each.dtype
        np.testing.assert_array_equal(found.arrays[name], each)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_form_gives_the_same(suffix, tmp_path):
    assert_same(read_arrays(write(tmp_path / f"a{suffix}", ARRAYS)), ARRAYS)


def test_compressed_and_transposed_arrays(tmp_path):
    arrays = {name: np.asfortranarray(each) for name, each in ARRAYS.items()}
    assert_same(read_arrays(write(tmp_path / "a.npz", arrays, compressed=True)), ARRAYS)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_of_torch_are_known_and_other_names_passed_over(suffix, tmp_path):
    arrays = {alias: np.full((1, 1, 1), place, np.int32) for place, alias in enumerate(ALIASES)}
    found = read_arrays(write(tmp_path / f"a{suffix}", arrays | {"unrelated": np.zeros(3, np.int32)}))
    assert_same(found, {ALIASES[alias]: each for alias, each in arrays.items()})
    assert set(found.arrays) <= set(NAMES)


def test_a_name_and_its_alias_are_one_too_many(tmp_path):
    arrays = {"mask_block_cnt": ARRAYS["mask_block_cnt"], "kv_num_blocks": ARRAYS["mask_block_cnt"]}
    assert "mask_block_cnt twice" in read_arrays(write(tmp_path / "a.npz", arrays)).fault


def test_a_torch_view_is_read_with_its_strides(tmp_path):
    whole = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    view = {"mask_block_cnt": whole[None, 1:, 2], "mask_block_idx": whole[0, :1].expand(2, 3, 4, 5)}
    torch.save(view, tmp_path / "a.pt")
    assert_same(read_arrays(tmp_path / "a.pt"), {name: each.numpy() for name, each in view.items()})


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "a.json", ARRAYS)
    read_arrays(path)
    write(path, {"mask_block_cnt": np.array([[[1, 2, 3]]], np.int32)})
    assert set(read_arrays(path).arrays) == {"mask_block_cnt"}


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_calls_nothing(protocol, tmp_path):
    """A `.pt` file whose pickle would write a file, in every protocol."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({"mask_block_cnt": Touch(tmp_path / "written")}, protocol))
    assert "torch.save({" in read_arrays(tmp_path / "a.pt").fault
    assert not (tmp_path / "written").exists()


def test_objects_beside_tensors_are_refused(tmp_path):
    torch.save({"mask_block_cnt": torch.ones(1), "when": np.datetime64("2026-01-01")}, tmp_path / "a.pt")
    assert "torch.save({" in read_arrays(tmp_path / "a.pt").fault
    torch.save({"mask_block_cnt": torch.ones(1)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert "not a zip" in read_arrays(tmp_path / "a.pt").fault


def npy(shape, *, descr="<i4", data=b""):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (npy((1 << 40,)), "more than 268,435,456 values"),
        (npy((1 << 28, 4, 4)), "more than 268,435,456 values"),
        (npy((-1,)), "more than"),
        (npy((1000,), data=bytes(40)), "the file is shorter"),
        (npy((1,), descr="|O", data=pickle.dumps(1)), "not numbers"),
        (npy((1,), descr="<U4", data=bytes(16)), "not numbers"),
        (b"", "broken"),
        (b"\x93NUMPY\x01\x00\xff\xff", "broken"),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_array_that_is_not_what_it_says(entry, fault, compression, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.writestr("mask_block_cnt.npy", entry)
    found = read_arrays(tmp_path / "a.npz")
    assert fault in found.fault
    assert not found.arrays


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_compression_that_claims_memory_is_refused(suffix, tmp_path):
    with zipfile.ZipFile(tmp_path / f"a{suffix}", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.pkl", b"")
    assert "another way than deflate" in read_arrays(tmp_path / f"a{suffix}").fault


def test_arrays_that_are_too_many_together(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mask_block_cnt.npy", npy((1 << 20,), data=bytes(4 << 20)))
        archive.writestr("mask_block_idx.npy", npy(((1 << 28) - 1000,), data=b""))
    (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    assert "more than 268,435,456 values" in read_arrays(tmp_path / "a.npz").fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[1]", "not a JSON object"),
        ('{"mask_block_cnt": [[1], [1, 2]]}', "differ in length"),
        ('{"mask_block_cnt": [[1], 2]}', "differ in length"),
        ('{"mask_block_cnt": [1.5]}', "not a whole number"),
        ('{"mask_block_cnt": [true]}', "not a whole number"),
        ('{"mask_block_cnt": "x"}', "not a whole number"),
        (f'{{"mask_block_cnt": [1{"0" * 30}]}}', "broken"),
        ('{"mask_block_cnt": ' + "[" * 100_000, "broken"),
        ("", "broken"),
    ],
)
def test_json_that_holds_no_arrays(text, fault, tmp_path):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert fault in read_arrays(tmp_path / "a.json").fault


def test_what_is_no_file_of_arrays(tmp_path):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    (tmp_path / "folder.npz").mkdir()
    assert "ends in .npz" in read_arrays(tmp_path / "a.txt").fault
    assert "ends in .npz" in read_arrays(tmp_path / "folder.npz").fault
    assert "No such file" in read_arrays(tmp_path / "gone.npz").fault
    assert "cannot be read" in read_arrays(tmp_path / "nul\0.npz").fault


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    return {suffix: write(folder / f"a{suffix}", ARRAYS).read_bytes() for suffix in SUFFIXES}


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_broken_files_are_faults_or_arrays_and_never_an_exception(originals, tmp_path, data):
    suffix = data.draw(st.sampled_from(SUFFIXES))
    content = bytearray(originals[suffix])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    found = read_arrays(path)
    assert not (found.fault and found.arrays)
    assert all(each.size <= 1 << 28 for each in found.arrays.values())
