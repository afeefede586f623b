# SPDX-License-Identifier: Apache-2.0
"""Which processes are killed, and when. The seed alone determines it."""

import random
from dataclasses import dataclass

_TRAINING = ("trainer", "launcher", "all")  # these have to be restarted
_MEMORY = ("agent", "supervisor", "agent and supervisor")  # training continues, so a trainer is killed later


@dataclass(frozen=True)
class Kill:
    victim: str
    step: int  # the kill follows the program's report of this step; 0: the start of the agents
    after_ms: int  # delay after that
    draw: float  # selects one of several processes

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
