# SPDX-License-Identifier: Apache-2.0
"""Models trained with tierckpt are exported, and transformers loads them bit for bit, without missing or unexpected
keys."""

import json

import pytest

from harness import run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tierckpt  # noqa: E402

MODELS = ("gpt2", "llama", "llama_tied")


def make(name):
    torch.manual_seed(1)
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=101,
                                                                    n_positions=16))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=101, tie_word_embeddings=name == "llama_tied"))


def wrap(model, kind):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in model.transformer.h if hasattr(model, "transformer") else model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


def train(rank, world, name, kind, config, files, to_storage, export_to=None):
    """Trains two steps and saves them; writes the plain state dict, without tied names, and the model's own files."""
    model = make(name)
    if rank == 0:
        model.save_pretrained(files)
    bare = model
    model = wrap(model, kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config, overrides={"node": f"node{rank}"})
    for _ in range(2):
        batch = torch.randint(0, 101, (2, 8))
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoint.save_checkpoint(2, to_storage=to_storage)
    checkpoint.wait("drained" if to_storage else "committed")
    state = {key: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
             for key, tensor in bare.state_dict().items()}
    if rank == 0:
        torch.save(state, f"{files}/state.pt")
        if export_to is not None:
            tierckpt.export(export_to, config, overrides={"node": "node0"}, memory=True, model_files=files)
    if world > 1:
        torch.distributed.barrier()
    checkpoint.close(job_done=to_storage)


def opened(name, directory, **kwargs):
    kind = type(make(name))
    model, info = kind.from_pretrained(directory, output_loading_info=True, **kwargs)
    assert not any(info.values()), info
    return model


def assert_equal(model, state):
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    for key, tensor in state.items():
        assert loaded[key].dtype == tensor.dtype and torch.equal(loaded[key], tensor), key


def trained(tmp_path, site, name, kind, **options):
    files = tmp_path / "files"
    run(tmp_path, "test_export:train", world=2, name=name, kind=kind, config=site.config, files=str(files),
        **{"to_storage": True, **options})
    return files, torch.load(files / "state.pt")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_from_storage(tmp_path, site, name, kind):
    files, state = trained(tmp_path, site, name, kind)
    done = tierckpt.export(tmp_path / "one", site.config, model_files=files)
    assert done.file_count == 1 and done.version.step == 2
    assert not (tmp_path / "one" / "model.safetensors.index.json").exists()
    assert_equal(opened(name, tmp_path / "one"), state)

    done = tierckpt.export(tmp_path / "many", site.config, shard_size=20000, model_files=files)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "many").glob("model-*-of-*.safetensors"))]
    assert len(sizes) == done.file_count > 2
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == done.bytes
    assert_equal(opened(name, tmp_path / "many"), state)


@pytest.mark.parametrize("kind, when", [("ddp", "running"), ("fsdp", "ended")])
def test_from_memory(tmp_path, site, kind, when):
    """Exports during the training, or from the agents that remain after it."""
    site.config["copies"] = 2
    out = tmp_path / "out"
    files, state = trained(tmp_path, site, "gpt2", kind, to_storage=False,
                           export_to=str(out) if when == "running" else None)
    if when == "ended":
        tierckpt.export(out, site.config, overrides={"node": "node1"}, memory=True, model_files=files)
    assert_equal(opened("gpt2", out), state)


def test_other_kinds_are_rounded_as_torch_rounds(tmp_path, site):
    files, state = trained(tmp_path, site, "gpt2", "ddp")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        directory = tmp_path / str(dtype)
        tierckpt.export(directory, site.config, dtype=dtype, model_files=files)
        assert_equal(opened("gpt2", directory, dtype=dtype),
                     {key: tensor.to(dtype) for key, tensor in state.items()})


def test_nothing_is_overwritten_and_nothing_left_half(tmp_path, site):
    files, _ = trained(tmp_path, site, "gpt2", "ddp")
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(tierckpt.ExistsError):
        tierckpt.export(there, site.config)
    with pytest.raises(tierckpt.NotFoundError, match="no tensor"):
        tierckpt.export(tmp_path / "new", site.config, include=["nothing"])
    damaged = max((site.dir / "save" / "test").glob("v*/shard-*.safetensors"), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[-100] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(tierckpt.CorruptError, match=damaged.name):
        tierckpt.export(tmp_path / "new", site.config)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("job-")) == ["files", "there"]


def test_other_layouts_are_named_by_patterns(tmp_path, site):
    _, state = trained(tmp_path, site, "gpt2", "ddp")
    tierckpt.export(tmp_path / "part", site.config, include=["transformer.h.*"], exclude=["*.bias"],
                    strip_prefix="transformer.", add_prefix="my.")
    from safetensors.torch import load_file

    loaded = load_file(tmp_path / "part" / "model.safetensors")
    wanted = {"my." + key.removeprefix("transformer."): tensor for key, tensor in state.items()
              if key.startswith("transformer.h.") and not key.endswith(".bias")}
    assert loaded.keys() == wanted.keys()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in wanted.items())
