# SPDX-License-Identifier: Apache-2.0
"""Which processes are killed, and when. The seed alone decides it."""

import random
from dataclasses import dataclass

_TRAINING = ("trainer", "launcher", "all")  # what has to be started again
_MEMORY = ("agent", "supervisor", "agent and supervisor")  # what goes on without it, so a trainer dies later


@dataclass(frozen=True)
class Kill:
    victim: str
    step: int  # comes when the program has said that it did this step; 0: when the agents are there
    after_ms: int  # and so long after that
    draw: float  # which of several processes

    def __str__(self):
        moment = f"step {self.step}" if self.step else "its start"
        return f"{self.victim} {self.after_ms} ms after {moment}"


def plan(seed: int, case: int, steps: int, launched: bool) -> list[Kill]:
    """One kill, or two if the first one leaves the training alive. launched: there is a process above the trainers."""
    dice = random.Random(f"{seed}/{case}")
    victims = [victim for victim in _TRAINING if launched or victim != "launcher"]
    first = dice.choice([*victims, "trainer", *_MEMORY])
    step = 0 if dice.random() < 0.15 else dice.randint(1, steps - 6)
    kills = [Kill(first, step, dice.randint(0, 60), dice.random())]
    if first in _MEMORY:
        kills.append(Kill(dice.choice(victims), dice.randint(step + 1, steps - 4), dice.randint(0, 60), dice.random()))
    return kills


def order(seed: int, names: list[str]) -> list[str]:
    names = sorted(names)
    random.Random(f"{seed}/order").shuffle(names)
    return names
