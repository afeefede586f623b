# SPDX-License-Identifier: Apache-2.0
"""One case: a program is started, killed as planned, and restarted until it ends. Then its results are checked."""

import json
import re
import shutil
import time
from pathlib import Path

import torch

from kills import Kill
from place import Site
from processes import Start, agents, kill
from program import Program
from tierckpt import errors
from tierckpt.runtime import control

STEP = re.compile(r"^step (\d+) loss (\S+)\s*$", re.MULTILINE)
_RUN_S, _END_S = 420, 20


class Wrong(Exception):
    """A guarantee was violated, or the case cannot be run."""


def losses(text: str) -> list[tuple[int, str]]:
    return [(int(step), loss) for step, loss in STEP.findall(text)]


def reference(program: Program, directory: Path) -> Path:
    """Returns the directory with the results of an uninterrupted run of the original program."""
    directory.mkdir(parents=True)
    script = directory / f"{program.name}.py"
    script.write_text(program.plain())
    with Start(program.command, script, directory, 0, program.paths()) as start:
        code = start.wait(_RUN_S)
        if code != 0:
            raise Wrong(f"the original program ended with {code}:\n{start.text()[-3000:]}")
    _check_steps(program, dict(losses(start.text())))
    return directory


def _check_steps(program: Program, seen: dict):
    if sorted(seen) != list(range(1, program.steps + 1)):
        raise Wrong(f"it says that it has {program.steps} steps, and did {sorted(seen)}")


class Case:
    """Use it in a with-statement. Its directory is removed if the case succeeded."""

    def __init__(self, program: Program, kills: list[Kill], reference_dir: Path):
        self._program, self._kills, self._reference = program, kills, reference_dir
        self._site = Site()
        self.directory = self._site.dir
        self._resumed = []

    def __enter__(self):
        return self

    def __exit__(self, kind, _error, _traceback):
        self._site.kill_agents()
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def run(self) -> str:
        """Returns a description of the result. Raises Wrong."""
        self._configure(save_storage_interval=5, save_mem_interval=1)
        script = self.directory / f"{self._program.name}.py"
        script.write_text(self._program.text)
        kills, number, floor = list(self._kills), 0, 0
        while True:
            number += 1
            with Start(self._program.command, script, self.directory, number, self._program.paths()) as start:
                ended = self._live(start, kills)
            self._note(start, floor)
            if ended:
                break
            floor = self._committed()
        self._compare()
        return self._sentence()

    def _configure(self, **values):
        self._site.config |= values
        (self.directory / "tierckpt.json").write_text(json.dumps(self._site.config))

    # ---- a start

    def _live(self, start: Start, kills: list[Kill]) -> bool:
        """True if the program ran to its end."""
        while kills:
            if not self._until(start, kills[0]):
                break
            one = kills.pop(0)
            pids = self._choose(start, one)
            kill(pids)
            if one.victim in ("trainer", "launcher", "all"):
                start.wait(0.2 if one.victim == "launcher" else _END_S)
                return start.code == 0
        code = start.wait(_RUN_S)
        if code is not None and code != 0 and self._refused_rightly(start):
            self._site.kill_agents()
            self._configure(job="afresh")
            return False
        if code != 0:
            raise Wrong(f"the start that should have succeeded ended with {code}:\n{start.text()[-4000:]}")
        return True

    def _refused_rightly(self, start: Start) -> bool:
        """The agents were killed with their memory before anything was on storage. The job must not start from the
        beginning by itself; the error says how to do that, for instance with another job name."""
        lost = any(one.victim == "agent and supervisor" for one in self._kills)
        published = list((self.directory / "save" / self._site.config["job"]).glob("v*/manifest.json"))
        return lost and not published and self._site.config["job"] != "afresh" and \
            "use another job name, run `tierckpt forget`" in start.text()

    def _until(self, start: Start, one: Kill) -> bool:
        """False if the program ended before that."""
        deadline = time.monotonic() + _RUN_S
        while not self._has_come(start, one):
            if start.code is not None:
                return False
            if time.monotonic() > deadline:
                raise Wrong(f"it did not reach {one} in {_RUN_S} s:\n{start.text()[-4000:]}")
            time.sleep(0.005)
        time.sleep(one.after_ms / 1000)
        return start.code is None

    def _has_come(self, start: Start, one: Kill) -> bool:
        if one.step == 0:
            return bool(agents(self.directory / "run", "agent"))
        return any(step >= one.step for step, _ in losses(start.text()))

    def _choose(self, start: Start, one: Kill) -> list[int]:
        if one.victim in ("agent", "supervisor", "agent and supervisor"):
            return agents(self.directory / "run", one.victim)
        pids = start.victims(one.victim)
        return [pids[int(one.draw * len(pids))]] if one.victim == "trainer" and pids else pids

    def _committed(self) -> int:
        """The step that the agent reports as committed, if it is running; an older step must not be restored."""
        if any("supervisor" in one.victim or "agent" in one.victim for one in self._kills):
            return 0  # its memory may be lost, or it may still be restarting
        try:
            return control.version_of(control.ask(self._site.config, None, "status"), "committed")[1]
        except errors.Error as error:
            raise Wrong(f"the agent does not report what is committed: {error}") from None

    # ---- the check

    def _note(self, start: Start, floor: int):
        """Every step, even one that was trained twice, must have the loss of the reference."""
        expected, seen = dict(losses((self._reference / "run.0.log").read_text())), losses(start.text())
        for step, loss in seen if self._program.bits else ():
            if expected[step] != loss:
                raise Wrong(f"{start.log.name}: the loss of step {step} is {loss}, without interruption "
                            f"{expected[step]}")
        if seen:
            self._resumed.append(seen[0][0] - 1)
            if seen[0][0] - 1 < floor:
                raise Wrong(f"{start.log.name}: resumed after step {seen[0][0] - 1}, though step {floor} was committed")

    def _compare(self):
        for name in sorted(path.name for path in self._reference.glob("*.pt")):
            ours = self.directory / name
            if not ours.exists():
                raise Wrong(f"it has not written {name}")
            if not self._program.bits:
                continue
            fault = difference(torch.load(ours, weights_only=False),
                               torch.load(self._reference / name, weights_only=False), name)
            if fault:
                raise Wrong(fault)

    def _sentence(self) -> str:
        died = " and ".join(map(str, self._kills))
        after = self._resumed[1:] if len(self._resumed) > 1 else []
        if self._site.config["job"] == "afresh":
            return (f"killed: {died}; refused, because nothing was on storage; started as the error says; equal "
                    "bits")
        back = f"resumed after step {' and '.join(map(str, after))}" if after else "it continued by itself"
        return f"killed: {died}; {back}; {'equal bits' if self._program.bits else self._program.head['equal']}"


def difference(ours, theirs, where: str) -> str | None:
    """Describes the first difference, compared bit by bit."""
    if torch.is_tensor(theirs):
        same = torch.is_tensor(ours) and ours.dtype == theirs.dtype and ours.shape == theirs.shape and \
            _bytes(ours) == _bytes(theirs)
        return None if same else f"{where} differs from that of the uninterrupted run"
    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or ours.keys() != theirs.keys():
            return f"{where} has other keys than that of the uninterrupted run"
        return next(filter(None, (difference(ours[key], theirs[key], f"{where}/{key}") for key in theirs)), None)
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{where} has {len(ours)} entries instead of {len(theirs)}"
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next(filter(None, (difference(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), None)
    return None if ours == theirs else f"{where} is {ours!r}, in the uninterrupted run {theirs!r}"


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
