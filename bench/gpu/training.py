# SPDX-License-Identifier: Apache-2.0
"""GPU.training: how much longer a step of a bf16 GPT with AdamW takes if every step is saved. Blocks of steps with and
without saves take turns in one process. --device cpu only tries out the script."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import agent

SKIPPED = 77
ID = "GPU.training"
SIZES = {"cuda": dict(vocabulary=32768, width=768, layers=12, heads=12, length=1024, batch=16, steps=20),
         "cpu": dict(vocabulary=256, width=64, layers=2, heads=4, length=32, batch=2, steps=3)}


def make_model(torch, size):
    """A plain GPT: its block is torch's own encoder layer with a causal mask."""
    class Gpt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width, nn = size["width"], torch.nn
            self.tokens = nn.Embedding(size["vocabulary"], width)
            self.places = nn.Embedding(size["length"], width)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(width, size["heads"], 4 * width, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True) for _ in range(size["layers"]))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, size["vocabulary"], bias=False)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(size["length"]),
                                 persistent=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x, src_mask=self.mask, is_causal=True)
            return self.head(self.norm(x))

    return Gpt()


class Training:
    def __init__(self, torch, device, directory):
        import tierckpt
        size = SIZES[device]
        torch.manual_seed(1)
        self.torch, self.device, self.steps = torch, device, size["steps"]
        self.model = make_model(torch, size).to(device=device, dtype=torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.batch = torch.randint(size["vocabulary"], (size["batch"], size["length"]), device=device)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.step = 0
        self.one_step()  # the optimizer has its state from then on
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer,
                                        overrides={**agent.overrides(directory), "memory_cap_bytes": "8GiB"})

    def one_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.batch)
        self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.batch.flatten()).backward()
        self.optimizer.step()
        self.step += 1

    def settle(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def seconds_per_step(self, save):
        """Of a block. The wait for its last save's copy is counted, too, which a longer block would not have."""
        self.settle()
        begin = time.perf_counter()
        for _ in range(self.steps):
            self.one_step()
            if save:
                self.checkpoint.save_checkpoint(self.step)
        self.checkpoint.fence()
        self.settle()
        return (time.perf_counter() - begin) / self.steps


def measure(torch, args):
    training = Training(torch, args.device, args.dir)
    ways = [False, True]
    times = {save: [] for save in ways}
    for save in ways:
        training.seconds_per_step(save)
    training.checkpoint.wait("copied")  # counted only then
    before = training.checkpoint.stats()
    for number in range(args.rounds):
        for save in ways if number % 2 == 0 else reversed(ways):
            times[save].append(training.seconds_per_step(save))
    training.checkpoint.wait("copied")
    stats = training.checkpoint.stats()
    training.checkpoint.close()
    return training, times, stats.saves_copied - before.saves_copied


def row(training, times, copied, rounds):
    ratios = [saved / plain for saved, plain in zip(times[True], times[False])]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if rounds > 1 else ratios * 3
    value = statistics.median(times[True]) / statistics.median(times[False])
    met = value <= 1.005 and copied == rounds * training.steps  # a save that is skipped costs nothing
    what = (f"step of a bf16 GPT of {training.parameters / 1e6:.0f} M parameters with AdamW on {training.device}, saved "
            f"every step ({copied} of {rounds * training.steps} saves taken) / the same without; {agent.COMMITTED}")
    print(json.dumps({"id": ID, "what": what, "unit": "ratio of time", "better": "less",
                      "value": float(f"{value:.5g}"), "goal": 1.005, "met": met, "rounds": rounds,
                      "spread": float(f"{(high - low) / value:.4g}"), "reference": "step without saving",
                      "reference_value": float(f"{statistics.median(times[False]) * 1e3:.5g}"),
                      "reference_unit": "ms"}), flush=True)


def skip(why):
    print(json.dumps({"id": ID, "skipped": why}), flush=True)
    return SKIPPED


def child(args):
    try:
        import torch
    except ImportError:
        return skip("torch is not installed, neither here nor in build/venv: run deploy/try once")
    if args.device == "cuda" and not torch.cuda.is_available():
        return skip("no CUDA device")
    row(*measure(torch, args), args.rounds)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--device", choices=SIZES, default="cuda")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("id", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    with tempfile.TemporaryDirectory(prefix="training.", dir=os.path.abspath(args.dir),
                                     ignore_cleanup_errors=True) as directory, agent.running(directory):
        command = [sys.executable, __file__, "--child", "--rounds", str(args.rounds), "--device", args.device]
        return subprocess.run([*command, "--dir", directory], env=agent.environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
