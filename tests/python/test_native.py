# SPDX-License-Identifier: Apache-2.0
"""Compares the mirrored structs and lists with the header."""

import ctypes
import subprocess

import pytest

from tierckpt import errors
from tierckpt.runtime import native

STRUCTS = {"tck_attach_params_t": native._AttachParams, "tck_record_t": native._Record,
           "tck_restored_t": native._Restored, "tck_stats_t": native._Stats, "tck_health_t": native._Health,
           "tck_progress_t": native._Progress,
           "tck_version_t": native._Version,
           "tck_published_open_params_t": native._OpenParams, "tck_published_info_t": native._PublishedInfo,
           "tck_published_entry_t": native._Entry, "tck_published_box_t": native._Box,
           "tck_export_params_t": native._ExportParams, "tck_exported_t": native._Exported}


def compiled(top, tmp_path, lines):
    source = tmp_path / "probe.c"
    source.write_text("#include <stdio.h>\n#include \"tierckpt.h\"\nint main(void)\n{\n" + "\n".join(lines) + "\n}\n")
    (tmp_path / "tierckpt_version.h").touch()  # a build generates it; its contents do not matter here
    program = tmp_path / "probe"
    subprocess.run(["cc", f"-I{top / 'include'}", f"-I{tmp_path}", str(source), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_has_the_offsets_of_the_header(top, tmp_path, name):
    mirror = STRUCTS[name]
    fields = [field[0] for field in mirror._fields_]
    lines = [f'printf("%zu ", offsetof({name}, {field}));' for field in fields] + [f'printf("%zu", sizeof({name}));']
    expected = [getattr(mirror, field).offset for field in fields] + [ctypes.sizeof(mirror)]
    assert list(map(int, compiled(top, tmp_path, lines))) == expected


def test_dtypes_have_the_order_of_the_header(top, tmp_path):
    lines = ["#define X(id, size, name) printf(\"%s \", name);", "TCK_DTYPE_MAP(X)"]
    assert tuple(compiled(top, tmp_path, lines)) == native.DTYPES


def test_every_status_has_an_exception(top, tmp_path):
    lines = ["#define X(id, value, text) printf(\"%d \", value);", "TCK_STATUS_MAP(X)"]
    values = set(map(int, compiled(top, tmp_path, lines))) - {0}
    assert {errors.from_status(value, "").status for value in values} == values
    assert all(type(errors.from_status(value, "")) is not errors.Error for value in values)


def test_stages_and_flags_have_the_values_of_the_header(top, tmp_path):
    lines = ['printf("%d %d %d %d ", TCK_STAGE_COPIED, TCK_STAGE_PROTECTED, TCK_STAGE_COMMITTED, TCK_STAGE_DRAINED);',
             'printf("%d %d %d ", TCK_DUE_NOTHING, TCK_DUE_MEMORY, TCK_DUE_STORAGE);',
             'printf("%d %d %d %d", TCK_LAZY, TCK_EAGER, TCK_SAVE_MEMORY, TCK_SAVE_STORAGE);']
    assert list(map(int, compiled(top, tmp_path, lines))) == [
        *native.STAGES.values(), native.DUE_NOTHING, native.DUE_MEMORY, native.DUE_STORAGE,
        native.LAZY, native.EAGER, native.SAVE_MEMORY, native.SAVE_STORAGE]
