# SPDX-License-Identifier: Apache-2.0
"""A training that changes its model in every way that users do: replaces parameters, adds groups, skips optimizer
steps, changes weights outside the optimizer, saves twice, goes back to earlier steps, and ends in all possible ways.

Before each save, the digest of everything to be saved is written to the journal, so that the state that a later launch
restores can be compared with it. The seed and the number of the launch determine all actions."""

import gc
import hashlib
import json
import os
import random
import signal
import sys

import torch
from torch import nn

LAYOUT, WRONG = 5, 6  # exit statuses


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 48)
        self.norm = nn.BatchNorm1d(48)
        self.last = nn.Linear(48, 8)
        self.tied = nn.Linear(48, 8)
        self.tied.weight = self.last.weight
        self.big = nn.Parameter(torch.zeros(300, 1000))  # long enough to be copied in the background

    def grow(self):
        self.adapter = nn.Linear(24, 48, bias=False)

    def forward(self, x):
        hidden = self.first(x) + (self.adapter(x) if hasattr(self, "adapter") else 0)
        return self.last(torch.relu(self.norm(hidden))) + self.tied(hidden) + self.big.sum() * 1e-3


OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2),
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-3),
    "nadam": lambda params: torch.optim.NAdam(params, lr=1e-3),
    "adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-3),
}


class Training:
    def __init__(self, task):
        self.task, self.dice = task, random.Random(f"{task['seed']}.{task['launch']}")
        chosen = random.Random(task["seed"])
        self.kind = chosen.choice(sorted(OPTIMIZERS))
        torch.manual_seed(task["seed"] * 1000 + task["launch"])
        self.net = Net()
        self.optimizer = OPTIMIZERS[self.kind](self.net.parameters())
        if task["grown"]:
            self.add_adapter()
        self.started = 0  # the newest step whose save was started in this term
        self.extra = {"launch": 0, "best": 1.5}
        self.step = 0
        self.journal_fd = os.open(task["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def journal(self, event, **members):
        line = json.dumps({"event": event, "launch": self.task["launch"], "step": self.step, **members}) + "\n"
        os.write(self.journal_fd, line.encode())

    def digest(self):
        """Digests of all tensors of the model by name, of the optimizer's by the index of their parameter (the model
        may have a new parameter with its name by now), and of the optimizer's numbers."""
        digest = hashlib.sha256()
        tensors = dict(self.net.state_dict())
        for number, group in enumerate(self.optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    tensors[f"optimizer {number}.{place} {key}"] = torch.as_tensor(value)
        for name in sorted(tensors):
            tensor = tensors[name].detach()
            if tensor.abs().sum() == 0 and name.startswith("optimizer"):
                continue  # state that does not exist yet counts as zero
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        digest.update(json.dumps([{key: repr(value) for key, value in sorted(group.items()) if key != "params"}
                                  for group in self.optimizer.param_groups]).encode())
        return digest.hexdigest()[:20]

    # ---- the checkpoint -------------------------------------------------------------------------------------------

    def begin(self):
        import tierckpt
        self.ckpt = tierckpt.init(model=self.net, optimizer=self.optimizer, extra_state=self.extra,
                                  config=self.task["config"])

    def load(self):
        import tierckpt
        before = self.digest()
        try:
            step = self.ckpt.load_checkpoint()
        except tierckpt.LayoutError as error:
            if self.digest() != before:
                self.fail(f"a load that failed has changed the model: {error}")
            self.journal("layout", why=str(error))
            sys.exit(LAYOUT)
        self.step, self.started = step or 0, 0
        self.journal("loaded", origin=self.extra["launch"], digest=self.digest(), none=step is None)

    def save(self):
        self.extra["launch"] = self.task["launch"]
        self.journal("save", digest=self.digest())
        result = self.ckpt.save_checkpoint_if_needed(self.step)
        if result:
            self.started = self.step
        self.journal("started" if result else "refused")

    def look(self):
        stats = self.ckpt.stats()
        self.journal("state", committed=stats.committed_step, published=stats.published_step)

    # ---- actions ---------------------------------------------------------------------------------------------

    def train(self):
        x, y = torch.randn(16, 24), torch.randn(16, 8)
        self.optimizer.zero_grad()
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            (self.net(x) - y).square().mean().backward()
        if self.dice.random() < 0.85:  # a scaler skips a step now and then
            self.optimizer.step()

    def replace_parameter(self):
        self.ckpt.fence()
        self.net.first.bias = nn.Parameter(self.net.first.bias.detach() + 1)

    def assign(self):
        self.ckpt.fence()
        self.net.load_state_dict({name: tensor.clone() * 1.25 if tensor.is_floating_point() else tensor.clone()
                                  for name, tensor in self.net.state_dict().items()}, assign=True)
        self.net.tied.weight = self.net.last.weight
        self.renew_optimizer()

    def renew_optimizer(self):
        """Creates a new optimizer, as users do after replacing parameters, without notifying the checkpoint."""
        named = list(self.net.named_parameters())
        for number, group in enumerate(self.optimizer.param_groups):
            group["params"][:] = [p for name, p in named if name.startswith("adapter") == (number == 1)]
        self.optimizer.state.clear()

    def has_strays(self):
        """True if the optimizer has parameters that the model no longer has."""
        there = set(map(id, self.net.parameters()))
        return any(id(p) not in there for group in self.optimizer.param_groups for p in group["params"])

    def move_data(self):
        self.ckpt.fence()
        self.net.last.bias.data = self.net.last.bias.data.clone() + 0.5

    def change_beside(self):
        """Changes a weight outside the optimizer, without a fence, possibly during a copy."""
        with torch.no_grad():
            self.net.big.add_(1)
            self.net.first.weight.mul_(1.01)

    def refresh(self):
        import tierckpt
        if self.has_strays():
            try:
                self.ckpt.refresh()
                self.fail("a refresh has registered an optimizer of parameters that the model does not have")
            except tierckpt.InvalidArgumentError:
                self.renew_optimizer()
        self.ckpt.refresh()
        self.started = 0
        self.journal("refreshed")

    def add_adapter(self):
        self.net.grow()
        self.optimizer.add_param_group({"params": list(self.net.adapter.parameters())})

    def grow(self):
        self.ckpt.fence()
        if not hasattr(self.net, "adapter"):
            self.add_adapter()
            if self.dice.random() < 0.7:
                self.refresh()

    def grow_extra(self):
        self.extra["best"] = self.dice.choice((2.5, torch.tensor(3.25), [1, 2, 3]))
        if self.dice.random() < 0.3:
            self.extra[f"new{self.step}"] = "x" * self.dice.choice((1, 1000, 300000))

    def save_again(self):
        """Saves again with the step of the previous save, which may have no version: it was loaded, or given up."""
        self.save()

    def step_back(self):
        if 3 < self.step <= self.started + 2 and self.ckpt.save_checkpoint_if_needed(self.step - 3):
            self.fail(f"step {self.step - 3} is saved after {self.started}")

    def fail(self, why):
        self.journal("wrong", why=why)
        sys.exit(WRONG)

    def init_again(self):
        if self.has_strays():
            self.ckpt.fence()
            self.renew_optimizer()
        self.ckpt.close(job_done=False)
        self.ckpt = None
        gc.collect()
        self.begin()
        self.load()

    def run(self):
        self.begin()
        self.load()
        acts = (self.replace_parameter, self.assign, self.move_data, self.refresh, self.grow, self.grow_extra,
                self.save_again, self.step_back, self.init_again)
        while self.step < self.task["steps"]:
            self.train()
            if self.dice.random() < 0.15:
                act = self.dice.choice(acts)
                self.journal("act", name=act.__name__)
                act()
            self.step += 1
            self.save()
            if self.dice.random() < 0.2:
                self.journal("act", name="change_beside")
                self.change_beside()
            self.look()
        self.leave()

    def leave(self):
        how = self.dice.choice(("exit", "raise", "_exit", "term", "drop", "close", "interrupt"))
        self.journal("leaves", how=how)
        if how == "raise":
            raise RuntimeError("an error of the training program")
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "_exit":
            os._exit(0)
        if how == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "drop":  # the tensors are freed while they are copied
            self.ckpt = self.net = self.optimizer = None
            gc.collect()
        if how == "close":
            self.ckpt.close(job_done=False)
        sys.exit(0)


def main(task):
    torch.set_num_threads(1)
    import logging
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    Training(task).run()
