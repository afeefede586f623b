# SPDX-License-Identifier: Apache-2.0
"""What Megatron has trained with parts of the model on several ranks is exported as whole tensors under the names of a
model family, and transformers computes the same with it."""

import importlib.util
import json

import pytest

from harness import run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")
if importlib.util.find_spec("megatron") is None:  # an import here takes seconds; the nursery imports it
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from safetensors.torch import load_file  # noqa: E402

import tierckpt  # noqa: E402

NURSERY = "export_megatron"
BATCH, SEQUENCE, VOCABULARY = 2, 8, 64


def config_of(family, tied):
    if family == "gpt2":
        return transformers.GPT2Config(n_layer=4, n_head=4, n_embd=16, n_inner=64, vocab_size=VOCABULARY,
                                       n_positions=SEQUENCE, tie_word_embeddings=tied)
    return transformers.LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=4,
                                    num_key_value_heads=2, vocab_size=VOCABULARY, rms_norm_eps=1e-6,
                                    tie_word_embeddings=tied)


def trained(tmp_path, site, nursery, family, world, tied=False, **kind):
    """Returns a directory with config.json and the logits of the trained model."""
    files = tmp_path / "files"
    files.mkdir()
    config = config_of(family, tied)
    config.architectures = ["GPT2LMHeadModel" if family == "gpt2" else "LlamaForCausalLM"]
    config.save_pretrained(files)
    run(tmp_path, "export_megatron:train", nursery=nursery, world=world, config=site.config, files=str(files),
        family=family, kind=kind, tied=tied)
    return files


def opened(directory, dtype=torch.float32):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    return model.eval()


def logits_of(model):
    with torch.no_grad():
        return model(torch.arange(BATCH * SEQUENCE).reshape(BATCH, SEQUENCE)).logits


def same_logits(model, files):
    """The two implementations add up in other orders, so the last bits of FP32 differ: 1e-5 is some hundred of them at
    values around 1, and a wrong weight changes the first digits."""
    saved = torch.load(files / "logits.pt").reshape(BATCH, SEQUENCE, VOCABULARY)
    return torch.allclose(logits_of(model), saved, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family, world, tied, kind", [
    ("llama", 4, False, {"tp": 2, "pp": 2, "distributed": True}),
    ("llama", 2, False, {"pp": 2, "chunks": 2}),
    ("llama", 2, True, {"tp": 2}),
    ("gpt2", 2, True, {"pp": 2, "distributed": True}),
    ("gpt2", 2, True, {"tp": 2}),
])
def test_model_of_a_family_computes_the_same(tmp_path, site, nursery, family, world, tied, kind):
    files = trained(tmp_path, site, nursery, family, world, tied, **kind)
    tierckpt.export(tmp_path / "out", site.config, model_files=files, names=f"megatron-{family}")
    assert same_logits(opened(tmp_path / "out"), files)


def test_pieces_in_fp32_give_the_bits_that_were_trained(tmp_path, site, nursery):
    """In the model's own BF16, or not rounded at all."""
    files = trained(tmp_path, site, nursery, "llama", 2, pp=2, distributed=True, bf16=True)
    tierckpt.export(tmp_path / "kept", site.config)
    tierckpt.export(tmp_path / "wide", site.config, dtype=torch.float32)
    kept, wide = (load_file(tmp_path / name / "model.safetensors") for name in ("kept", "wide"))
    assert kept.keys() == wide.keys()
    for stage in (0, 1):
        for layer in (0, 1):
            for part in ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2"):
                tensor = torch.load(files / f"rank{stage}.pt")[f"0:decoder.layers.{layer}.{part}.weight"]
                name = f"decoder.layers.{2 * stage + layer}.{part}.weight"
                assert kept[name].dtype == torch.bfloat16 and torch.equal(kept[name], tensor), name
                assert wide[name].dtype == torch.float32 and torch.equal(wide[name].bfloat16(), tensor), name
                assert not torch.equal(wide[name], tensor.float()), name
    assert not [name for name in kept if name.startswith(("optimizer", "rank", "pp"))]


def test_experts_have_their_numbers_among_all(tmp_path, site, nursery):
    files = trained(tmp_path, site, nursery, "llama", 2, experts=4, ep=2, distributed=True, bf16=True)
    tierckpt.export(tmp_path / "out", site.config)
    out = load_file(tmp_path / "out" / "model.safetensors")
    for rank in (0, 1):
        held = torch.load(files / f"rank{rank}.pt")
        for local in (0, 1):
            for part in ("linear_fc1", "linear_fc2"):
                expert = "decoder.layers.3.mlp.experts.local_experts"
                tensor = held[f"0:{expert}.{local}.{part}.weight"]
                assert torch.equal(out[f"{expert}.{2 * rank + local}.{part}.weight"], tensor), (rank, local, part)
    assert len([name for name in out if ".layers.3.mlp.experts." in name]) == 8


def test_name_that_no_rule_fits_is_an_error_before_anything_is_written(tmp_path, site, nursery):
    """A mapping of the user's own adds what the shipped one lacks."""
    trained(tmp_path, site, nursery, "llama", 2, experts=2, ep=2)
    with pytest.raises(tierckpt.NotFoundError, match="no rule of the mapping fits \"decoder.layers.0.mlp.experts"):
        tierckpt.export(tmp_path / "out", site.config, names="megatron-llama")
    assert not (tmp_path / "out").exists()
    experts = "decoder.layers.{n}.mlp.experts.local_experts.{e}"
    rules = [{"from": f"{experts}.linear_fc1.weight", "split": "halves",
              "to": ["model.layers.{n}.experts.{e}.w1.weight", "model.layers.{n}.experts.{e}.w3.weight"]},
             {"from": f"{experts}.linear_fc2.weight", "to": "model.layers.{n}.experts.{e}.w2.weight"},
             {"from": "decoder.layers.{n}.mlp.router.weight", "drop": True}]
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"format": 1, "extends": "megatron-llama", "rules": rules}))
    tierckpt.export(tmp_path / "out", site.config, names=own)
    out = load_file(tmp_path / "out" / "model.safetensors")
    assert out["model.layers.3.experts.1.w3.weight"].shape == (24, 16)
    assert not [name for name in out if not name.startswith(("model.", "lm_head."))]


def test_what_megatron_describes_by_copies_is_declared_as_unknown(tmp_path, nursery):
    layers, of_twin = run(tmp_path, "export_megatron:declare_copies", nursery=nursery, world=2, family="llama", kind={})
    assert len(layers) == 4 and all("does not say where" in layer["refused"] for layer in layers)
    assert of_twin == []  # it names the rank that declares the same
