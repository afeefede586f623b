# SPDX-License-Identifier: Apache-2.0
"""A program of the suite: a script as its community writes it, in which each added line is marked.

Without the marked lines it is the original program, whose results are the reference. The comment lines `# key: value`
at its head say how it is run:

    needs   packages beside torch that must be installed
    launch  the command, {script} being the script
    steps   how many steps it trains
    quick   yes: it is part of the default run
    equal   bits (default); or what is compared, and why not more, for programs that torch cannot reproduce
"""

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

MARK = "# <- tierckpt"
HERE = Path(__file__).resolve().parent
_HEAD = re.compile(r"^# (needs|launch|steps|quick|equal): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    name: str
    text: str
    head: dict

    @classmethod
    def read(cls, path: Path) -> "Program":
        text = path.read_text()
        return cls(path.stem, text, dict(_HEAD.findall(text)))

    @property
    def title(self) -> str:
        """Returns the first line of its docstring."""
        return re.search(r'"""(.*?)\.?(?:"""|\n)', self.text)[1]

    @property
    def steps(self) -> int:
        return int(self.head["steps"])

    @property
    def quick(self) -> bool:
        return self.head.get("quick") == "yes"

    @property
    def bits(self) -> bool:
        return self.head.get("equal", "bits") == "bits"

    @property
    def launched(self) -> bool:
        """True if the trainers have a launcher."""
        return self.command.startswith("torchrun") or self.command.endswith(" launched")

    @property
    def command(self) -> str:
        return self.head.get("launch", "python {script}")

    def added(self) -> list[str]:
        """The marked lines, without the mark."""
        return [line.split(MARK)[0].strip() for line in self.text.splitlines() if line.rstrip().endswith(MARK)]

    def plain(self) -> str:
        """The original program."""
        return "".join(line for line in self.text.splitlines(True) if not line.rstrip().endswith(MARK))

    def missing(self) -> list[str]:
        """Packages that are not installed for this interpreter."""
        return [name for name in self.head.get("needs", "").split() if place_of(name) is None]

    def paths(self) -> list[Path]:
        """The directories that it needs in PYTHONPATH."""
        beside = [beside_of(name) for name in self.head.get("needs", "").split()]
        return [HERE, *filter(None, beside)]


def beside_of(package: str) -> Path | None:
    """The separate directory of a package that would interfere with other programs."""
    directory = Path(sys.prefix, "beside", package)
    return directory if directory.is_dir() else None


def place_of(package: str):
    return beside_of(package) or importlib.util.find_spec(package.split(".")[0])


def programs() -> list[Program]:
    return [Program.read(path) for path in sorted((HERE / "programs").glob("*.py"))]
