# SPDX-License-Identifier: Apache-2.0
"""The quick start of README.md as files: quick_start.py README DIR writes DIR/train.py and DIR/quick.sh."""

import re
import sys
from pathlib import Path

readme, where = map(Path, sys.argv[1:])
section = re.search(r"^## Try it.*?(?=^## )", readme.read_text(encoding="utf-8"), re.M | re.S)
if section is None:
    sys.exit(f"{readme} has no section 'Try it'")
blocks = re.findall(r"^```(\w*)\n(.*?)^```", section[0], re.M | re.S)
programs = [text for language, text in blocks if language == "python"]
commands = [text for language, text in blocks if language != "python"]
if len(programs) != 1 or not commands:
    sys.exit(f"{readme}: 'Try it' has {len(programs)} programs and {len(commands)} blocks of commands")
(where / "train.py").write_text(programs[0], encoding="utf-8")
(where / "quick.sh").write_text("".join(commands), encoding="utf-8")
