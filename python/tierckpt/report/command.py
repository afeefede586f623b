# SPDX-License-Identifier: Apache-2.0
"""tierckpt report: the page of a run."""

import argparse
import os
import sys
from pathlib import Path

from .. import errors
from ..runtime.settings import values_of_file
from . import traces
from .run import run_of


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tierckpt report", description="Makes a page about a run: stalls, commits, "
                                     "drains, losses and recoveries, from the traces that its agents have written.")
    parser.add_argument("page", help="the HTML file to write")
    parser.add_argument("traces", nargs="*", help="files *.trace.json, or directories of them; default: trace_dir of "
                        "the configuration")
    parser.add_argument("--config", default=os.environ.get("TIERCKPT_CONFIG"),
                        help="the job's configuration; default: $TIERCKPT_CONFIG")
    options = parser.parse_args(arguments)
    try:
        _write(Path(options.page), _files(options.traces, options.config))
    except errors.Error as error:
        print(f"tierckpt report: {error}", file=sys.stderr)
        return 1
    return 0


def _files(given: list[str], config: str | None) -> list[Path]:
    if not given:
        trace_dir = values_of_file(config).get("trace_dir") if config else None
        if not trace_dir:
            raise errors.ConfigError("there is no trace: name the files, or a configuration with trace_dir (--config, "
                                     "TIERCKPT_CONFIG)")
        given = [str(trace_dir)]
    return [file for name in given for file in (traces.files_in(name) if os.path.isdir(name) else [Path(name)])]


def _write(target: Path, files: list[Path]) -> None:
    try:
        from .page import page
    except ImportError as error:
        raise errors.UnsupportedError(f"{error.name} is not installed, which draws the page: pip install "
                                      "'tierckpt[report]'") from error
    events = traces.read(files)
    jobs = sorted({event.job for event in events})
    if len(jobs) > 1:
        raise errors.InvalidArgumentError(f"these are traces of several jobs, {', '.join(jobs)}: name the files of one")
    run = run_of(events)
    if run is None:
        raise errors.NotFoundError("the traces have no event yet")
    try:
        target.write_text(page(run, jobs[0]), encoding="utf-8")
    except OSError as error:
        raise errors.IoError(f"{target}: {error.strerror}") from error
