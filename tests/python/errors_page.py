# SPDX-License-Identifier: Apache-2.0
"""Makes everyday mistakes as a user does, and generates docs/errors.md, the page with the errors that they produce.

    TCK_BUILD=build/release python tests/python/errors_page.py    regenerates the page

test_front_door.py makes each mistake and compares the error with its row."""

import contextlib
import json
import multiprocessing
import os
import re
import subprocess
from pathlib import Path

import torch
from torch import nn

import place
import tierckpt
from tierckpt.runtime import native

PAGE = place.TOP / "docs/errors.md"
_TEXT_MAX = 420

_HEAD = """# Everyday errors

Each entry is a mistake and the text that it produces, with the Python exception, whose `status` is that of the C
function (`tierckpt.h`), or with the exit status of the command: 0 the answer is good, 1 it is not, 2 wrong usage.
Paths, process ids and names of nodes are shown as `/job`, `PID` and `NODE`. The tests make each mistake and compare
what is printed (`tests/python/errors_page.py` writes the page).

Errors of running jobs are in [troubleshooting.md](troubleshooting.md).
"""

CASES = []  # (section, what was done, function of a Site that makes the mistake)


def case(section, what):
    def add(function):
        CASES.append((section, what, function))
        return function
    return add


# ---- making a mistake, and its error ---------------------------------------------------------------------------------


def init(site, model=None, optimizer=None, config=None, **more):
    """Calls init as a training program of one rank does; values of `config` override those of the site."""
    model = nn.Linear(2, 2) if model is None else model
    values = {**site.config, **(config or {})}
    return tierckpt.init(model=model, optimizer=optimizer, config={k: v for k, v in values.items() if v is not None},
                         **more)


def file_of(site, text):
    path = site.dir / "ckpt.json"
    path.write_text(text)
    return path


def command(*words):
    """An error of the command, with its text and exit status."""
    done = subprocess.run(["tierckpt", *words], capture_output=True, text=True, timeout=60, check=False,
                          env={k: v for k, v in os.environ.items() if k != "TIERCKPT_CONFIG"})
    return (done.stderr or done.stdout).strip(), done.returncode


def outcome(site, function):
    """(text, status) of a mistake; None if it produces no error."""
    try:
        with contextlib.closing(_Closer()) as closer:
            said = function(site, closer)
    except tierckpt.Error as error:  # any other exception is a fault of this page
        return normal(site, str(error)), type(error).__name__
    return (normal(site, said[0]), str(said[1])) if said else ("nothing: it works", "")


class _Closer:
    """Closes checkpoints that a mistake leaves open."""

    def __init__(self):
        self._open = []

    def __call__(self, checkpoint):
        self._open.append(checkpoint)
        return checkpoint

    def close(self):
        for checkpoint in self._open:
            with contextlib.suppress(tierckpt.Error):
                checkpoint.close(job_done=False)


def normal(site, text):
    """Normalizes a text to one line without the paths and numbers of this machine and run."""
    node = os.uname().nodename
    text = text.replace(str(site.dir), "/job").replace(os.path.expanduser("~"), "~")
    text = re.sub(r"<object object at 0x[0-9a-f]+>", "<object>", text)
    text = re.sub(rf"\b{re.escape(node)}\b", "NODE", text)
    text = re.sub(r"\b(pid|process|user) \d+", lambda m: f"{m[1]} {'PID' if m[1] != 'user' else 'UID'}", text)
    text = re.sub(r"\(see /job/run/\S+\)", "(see its log)", text)
    return " ".join(text.split())[:_TEXT_MAX]


def shown(text):
    """Escapes a text for Markdown, where a `<` outside of code would begin a tag."""
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(text.split("`")))


def row(what, said, status):
    label = f"exit status {status}: " if status.isdigit() else f"`{status}`: " if status else ""
    return f"- {shown(what)}\n  - {label}{shown(said)}\n"


# ---- configuration ---------------------------------------------------------------------------------------------------


def bad_file(what, text):
    case("The configuration file", what)(lambda site, _: init_file(site, text))


def init_file(site, text):
    tierckpt.init(model=nn.Linear(1, 1), config=file_of(site, text))


bad_file("`save_mem_intervall` for `save_mem_interval`", '{"save_dir": "/s", "save_mem_intervall": 10}')
bad_file("`checkpoint_dir`, which is no key", '{"checkpoint_dir": "/s"}')
bad_file("no `save_dir`", '{"job": "x"}')
bad_file("`\"slots\": \"3\"`: a text for a number", '{"save_dir": "/s", "slots": "3"}')
bad_file("`\"slots\": 9`", '{"save_dir": "/s", "slots": 9}')
bad_file("`\"save_mem_interval\": \"10 steps\"`", '{"save_dir": "/s", "save_mem_interval": "10 steps"}')
bad_file("`\"memory_cap_bytes\": \"64GB\"`", '{"save_dir": "/s", "memory_cap_bytes": "64GB"}')
bad_file("`\"on_node_loss\": \"restart\"`", '{"save_dir": "/s", "on_node_loss": "restart"}')
bad_file("`\"storage\": \"s3\"`", '{"save_dir": "/s", "storage": "s3"}')
bad_file("`\"job\": \"my job\"`", '{"save_dir": "/s", "job": "my job"}')
bad_file("`heartbeat_ms` above half of `peer_timeout_ms`", '{"save_dir": "/s", "heartbeat_ms": 2000}')
bad_file("one key twice", '{"save_dir": "/s", "slots": 2, "slots": 3}')
bad_file("a comma after the last key", '{\n  "save_dir": "/s",\n}')
bad_file("single quotes", "{'save_dir': '/s'}")
bad_file("a comment", '{"save_dir": "/s" # there\n}')
bad_file("`True` for `true`", '{"slots": True}')
bad_file("the text ends early", '{"save_dir": "/s"')
bad_file("an empty file", "")
bad_file("a list", "[1]")


@case("The configuration file", "a path that does not exist")
def _(site, _closer):
    tierckpt.init(model=nn.Linear(1, 1), config=site.dir / "chkpt.json")


@case("The configuration file", "a directory")
def _(site, _closer):
    tierckpt.init(model=nn.Linear(1, 1), config=site.dir)


# ---- paths -----------------------------------------------------------------------------------------------------------


def bad_path(what, **values):
    def function(site, closer):
        closer(init(site, config={k: v.replace("/job", str(site.dir)) for k, v in values.items()}))
    case("Directories and files", what)(function)


bad_path("`\"save_dir\": \"s3:/bucket/x\"`", save_dir="s3:/bucket/x")
bad_path("`\"save_dir\": \"file:///job/x\"`", save_dir="file:///job/x")
bad_path("`\"save_dir\": \"$HOME/x\"`", save_dir="$HOME/x")
bad_path("`\"save_dir\": \"~bob/x\"`", save_dir="~bob/x")
bad_path("`\"load_dir\": \"gs://bucket/x\"`", load_dir="gs://bucket/x")
bad_path("`save_dir` below a mount that is missing", save_dir="/job/mount/ckpt")
bad_path("`load_dir` that does not exist", load_dir="/job/old")
bad_path("`token_file` that does not exist", token_file="/job/token")
bad_path("`log_file_path` in a directory that does not exist", log_file_path="/job/logs/agent.log")
bad_path("`net_device` that this machine does not have", net_device="eth99", net_address="")


@case("Directories and files", "`save_dir` is a file")
def _(site, closer):
    (site.dir / "file").write_text("")
    closer(init(site, config={"save_dir": str(site.dir / "file")}))


@case("Directories and files", "`save_dir` is a dangling symbolic link")
def _(site, closer):
    (site.dir / "link").symlink_to(site.dir / "nowhere")
    closer(init(site, config={"save_dir": str(site.dir / "link")}))


@case("Directories and files", "`<save_dir>/<job>` holds something else")
def _(site, closer):
    (site.dir / "save/test").mkdir(parents=True)
    (site.dir / "save/test/thesis.tex").write_text("")
    closer(init(site))


@case("Directories and files", "`token_file` that others may read")
def _(site, closer):
    (site.dir / "token").write_text("00" * 32)
    (site.dir / "token").chmod(0o644)
    closer(init(site, config={"token_file": str(site.dir / "token")}))


@case("Directories and files", "`runtime_dir` that others may enter")
def _(site, closer):
    (site.dir / "run/test" / os.uname().nodename).mkdir(parents=True)
    (site.dir / "run/test" / os.uname().nodename).chmod(0o755)
    closer(init(site))


@case("Directories and files", "`runtime_dir` below a file")
def _(site, closer):
    (site.dir / "file").write_text("")
    closer(init(site, config={"runtime_dir": str(site.dir / "file/run")}))


# ---- tensors ---------------------------------------------------------------------------------------------------------


def tensor(what, make):
    """Saves and loads a buffer of this kind."""
    def function(site, closer):
        model = nn.Linear(2, 2)
        model.register_buffer("extra", make())
        checkpoint = closer(init(site, model))
        checkpoint.save_checkpoint(1)
        checkpoint.wait("committed")
        kept = model.extra.clone()
        with torch.no_grad():
            model.extra.zero_()
        if checkpoint.load_checkpoint() != 1 or not torch.equal(_plain(model.extra), _plain(kept)):
            return "WRONG: it was not restored", 1
        return None
    case("A tensor of the model", what)(function)


def _plain(value):
    return value.view(torch.uint8) if value.is_floating_point() and value.element_size() == 1 else value


tensor("sparse", lambda: torch.eye(3).to_sparse())
tensor("sparse by rows (CSR)", lambda: torch.eye(3).to_sparse_csr())
tensor("quantized", lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8))
tensor("on the device `meta`", lambda: torch.empty(3, device="meta"))
tensor("of a lazy module that has run no forward pass", torch.nn.parameter.UninitializedBuffer)
tensor("not contiguous: transposed", lambda: torch.arange(6.0).view(2, 3).t())
tensor("not contiguous: every other column", lambda: torch.arange(12.0).view(3, 4)[:, ::2])
tensor("`channels_last`", lambda: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last))
tensor("expanded: one element stands for several", lambda: torch.ones(1).expand(4))
tensor("of no elements", lambda: torch.empty(0, 3))
tensor("without dimensions", lambda: torch.tensor(2.5))
tensor("float8_e4m3fn", lambda: torch.ones(4).to(torch.float8_e4m3fn))
tensor("float8_e5m2", lambda: torch.ones(4).to(torch.float8_e5m2))
tensor("float8_e4m3fnuz", lambda: torch.ones(4).to(torch.float8_e4m3fnuz))
tensor("complex64", lambda: torch.ones(4, dtype=torch.complex64))
tensor("complex128", lambda: torch.ones(4, dtype=torch.complex128))
tensor("of nine dimensions", lambda: torch.ones([1] * 9))


# ---- calls -----------------------------------------------------------------------------------------------------------


def call(what, **values):
    def add(function):
        def wrong(site, closer):
            return function(closer(init(site, config=values)), site)
        case("Calls", what)(wrong)
        return function
    return add


call("`save_checkpoint(0)`")(lambda checkpoint, _: checkpoint.save_checkpoint(0))
call("`save_checkpoint(-1)`")(lambda checkpoint, _: checkpoint.save_checkpoint(-1))
call("`save_checkpoint(\"12\")`")(lambda checkpoint, _: checkpoint.save_checkpoint("12"))
call("`save_checkpoint(2.5)`")(lambda checkpoint, _: checkpoint.save_checkpoint(2.5))
call("`load_checkpoint(-1)`")(lambda checkpoint, _: checkpoint.load_checkpoint(-1))
call("`wait(\"copied\")` before any save")(lambda checkpoint, _: checkpoint.wait("copied"))
call("`wait(\"done\")`")(lambda checkpoint, _: checkpoint.wait("done"))


@call("a save after `close()`")
def _(checkpoint, _site):
    checkpoint.close(job_done=False)
    checkpoint.save_checkpoint(1)


@call("a load after `close()`")
def _(checkpoint, _site):
    checkpoint.close(job_done=False)
    checkpoint.load_checkpoint()


@call("`save_last(6)` after step 7 was saved")
def _(checkpoint, _site):
    checkpoint.save_checkpoint(7)
    checkpoint.wait("committed")
    checkpoint.save_last(6)


@call("`load_checkpoint(step=7)`, and there is none of step 7")
def _(checkpoint, _site):
    checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    checkpoint.load_checkpoint(step=7)


@case("Calls", "`init` of something that is no module")
def _(site, closer):
    closer(init(site, model="my model"))


@case("Calls", "`init(optimizer=...)` of another model's parameters")
def _(site, closer):
    closer(init(site, optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)))


@case("Calls", "`init(scheduler=object())`")
def _(site, closer):
    closer(init(site, scheduler=object()))


@case("Calls", "`init(optimizer=torch.optim.SGD)`: the class")
def _(site, closer):
    closer(init(site, optimizer=torch.optim.SGD))


@case("Calls", "`init(extra_state=3)`")
def _(site, closer):
    closer(init(site, extra_state=3))


@case("Calls", "`init(extra_state={\"when\": datetime})`")
def _(site, closer):
    import datetime
    closer(init(site, extra_state={"when": datetime.datetime(2026, 1, 1)})).save_checkpoint(1)


@case("Calls", "`init(capacity={\"optimiser\": 1})`")
def _(site, closer):
    closer(init(site, capacity={"optimiser": 1}))


# ---- calls of the C library ------------------------------------------------------------------------------------------


class _NoOthers:
    """The allgather of a job with one rank."""
    callback = None
    context = None

    def reraise(self):
        pass


class _Attached:
    """A client in the state in which a C program has it after tck_attach, with one blob to save."""

    def __init__(self, site):
        self.native = native.Client(config_file=None, config_json=json.dumps(site.config), rank=0, world_size=1,
                                     oob=_NoOthers())
        self.native.add_blob("position", 8)

    def close(self, job_done):
        self.native.detach(job_done)


def c_call(what, mistake):
    def function(site, closer):
        mistake(closer(_Attached(site)).native)
    case("Calls from C", what)(function)


def without_client(name, *arguments):
    @case("Calls from C", f"`{name}(NULL, ...)`, as before `tck_attach`")
    def _(_site, _closer):
        library = native._load_library()
        status = getattr(library, name)(None, *arguments)
        raise tierckpt.errors.from_status(status, library.tck_errmsg(None).decode())


def _in_child(client):
    """Returns the error in a forked child, which still has the client's address."""
    pipe = multiprocessing.Pipe(duplex=False)
    handle = client._handle.value
    child = os.fork()
    if child == 0:
        status = client._library.tck_fence(handle)
        pipe[1].send((status, client._library.tck_errmsg(handle).decode()))
        os._exit(0)
    status, text = pipe[0].recv()
    os.waitpid(child, 0)
    raise tierckpt.errors.from_status(status, text)


without_client("tck_register")
without_client("tck_save_if_needed", 1, None)
without_client("tck_restore", 1, None)
c_call("`tck_save_if_needed` before `tck_register`", lambda client: client.save_if_needed(1))
c_call("`tck_restore` before `tck_register`", lambda client: client.restore(native.NEWEST))
c_call("`tck_wait` before `tck_register`", lambda client: client.wait(1, 0, 0))
c_call("`tck_save_last` before `tck_register`", lambda client: client.save_last(1, 0))
c_call("`tck_register` twice", lambda client: client.register() or client.register())
c_call("`tck_add_blob` after `tck_register`", lambda client: client.register() or client.add_blob("late", 8))
c_call("`tck_set_blob` of one that was not added", lambda client: client.set_blob("late", b"1"))
c_call("`tck_wait` for a step that was not saved", lambda client: client.register() or client.wait(3, 0, 0))
c_call("`tck_snapshot` of step 0", lambda client: client.register() or client.snapshot(0, native.SAVE_MEMORY))
c_call("`tck_fence` in a forked child", _in_child)


# ---- the command -----------------------------------------------------------------------------------------------------


def shell(line, what=None):
    def function(site, _closer):
        file_of(site, json.dumps(site.config))
        Path(site.config["save_dir"]).mkdir()
        return command(*line.replace("/job", str(site.dir)).split())
    case("The command", what or f"`tierckpt {line}`")(function)


_GIVEN = "--config /job/ckpt.json"
shell(f"{_GIVEN} statsu", "`tierckpt statsu`")
shell(f"{_GIVEN} status", "`tierckpt status`, and no agent of the job runs here")
shell(f"{_GIVEN} status now", "`tierckpt status now`")
shell(f"{_GIVEN} verify --step 4", "`tierckpt verify --step 4`")
shell(f"{_GIVEN} show", "`tierckpt show`")
shell(f"{_GIVEN} ls", "`tierckpt ls`, and nothing was saved")
shell(f"{_GIVEN} verify published", "`tierckpt verify published`, and nothing was saved")
shell(f"{_GIVEN} prune", "`tierckpt prune`, and nothing was saved")
shell(f"{_GIVEN} config --set slots", "`tierckpt config --set slots`")
shell(f"{_GIVEN} config --set slots=2", "`tierckpt config --set slots=2`, and no agent of the job runs here")
shell(f"{_GIVEN} --keep none prune", "`tierckpt prune --keep none`")
shell("--config /job/no.json status", "`tierckpt --config no.json status`, which is not there")


@case("The command", "`tierckpt ls`, and `save_dir` is mistyped")
def _(site, _closer):
    return command("--config", str(file_of(site, json.dumps(site.config))), "ls")


@case("The command", "`tierckpt.open_published(...)`, and `save_dir` is mistyped")
def _(site, closer):
    closer(tierckpt.open_published(site.config))


@case("The command", "`tierckpt.open_published(...)`, and nothing was saved")
def _(site, closer):
    Path(site.config["save_dir"]).mkdir()
    closer(tierckpt.open_published(site.config))


@case("The command", "`tierckpt status` where no agent is known")
def _(site, _closer):
    os.environ["TIERCKPT_RUNTIME_DIR"] = str(site.dir / "empty")
    try:
        return command("status")
    finally:
        del os.environ["TIERCKPT_RUNTIME_DIR"]


# ---- the page --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def a_site():
    site = place.Site()
    try:
        yield site
    finally:
        site.kill_agents()


def made(index):
    """Makes the mistake of a case, and returns its row."""
    _section, what, function = CASES[index]
    with a_site() as site:
        return row(what, *outcome(site, function))


def page(rows):
    parts, last = [_HEAD], None
    for (section, _what, _function), line in zip(CASES, rows, strict=True):
        if section != last:
            parts.append(f"\n## {section}\n\n")
        last = section
        parts.append(line)
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page([made(index) for index in range(len(CASES))]))
