# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed has trained is exported as whole tensors, and transformers loads it bit for bit."""

import importlib.util

import pytest

from harness import run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if importlib.util.find_spec("deepspeed") is None:  # an import here takes seconds; the nursery imports it
    pytest.skip("deepspeed is not installed", allow_module_level=True)

import tierckpt  # noqa: E402

NURSERY = "export_zero"


def trained(tmp_path, site, nursery, **kind):
    files = tmp_path / "files"
    run(tmp_path, "export_zero:train", nursery=nursery, world=2, config=site.config, files=str(files), **kind)
    return files, torch.load(files / "state.pt")


def opened(directory, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True, **options)
    assert not any(info.values()), info
    return model


@pytest.mark.parametrize("stage, dtype, tied", [
    (0, "bf16", False), (1, "bf16", False), (2, "fp32", False), (3, "fp32", False), (3, "bf16", False),
    (3, "bf16", True)])
def test_weights_are_whole_and_nothing_else_is_exported(tmp_path, site, nursery, stage, dtype, tied):
    files, state = trained(tmp_path, site, nursery, stage=stage, dtype=dtype, tied=tied)
    tierckpt.export(tmp_path / "out", site.config, model_files=files)
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    model = opened(tmp_path / "out", dtype=kind)
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    for key, tensor in state.items():
        assert tensor.dtype == kind and loaded[key].dtype == kind and torch.equal(loaded[key], tensor), key
    if dtype == "fp32":
        with torch.no_grad():
            logits = model.eval()(torch.arange(24).reshape(2, 12)).logits
        assert torch.equal(logits, torch.load(files / "logits.pt"))
