# SPDX-License-Identifier: Apache-2.0
"""Tierckpt in gdb: `source deploy/gdb/tierckpt.py`. Prints versions and digests as the log does; `help tierckpt` lists the
commands, which find the agent of the process by themselves. docs/debugging.md shows them."""

import gdb

NONE32 = 0xFFFFFFFF


# ---- values ----------------------------------------------------------------------------------------------------------


def version_text(value):
    """TERM.STEP, as in logs and for `tierckpt show`, or "none"."""
    term, step = int(value["term"]), int(value["step"])
    return f"{term}.{step}" if term else "none"


def hash_text(value):
    return f"{int(value['hi']):016x}{int(value['lo']):016x}"


def slot_text(value):
    """State, version, and what keeps the slot from being used again."""
    state = str(value["state"]).removeprefix("SLOT_").lower()
    parts = [f"{state:11} {version_text(value['version'])}"]
    if int(value["pins"]):
        parts.append(f"{int(value['pins'])} readers")
    if int(value["from"]) != NONE32 and state == "receiving":
        parts.append(f"from node {int(value['from'])}")
    parts += [text for field, text in (("to_storage", "to storage"), ("undigested", "digests to be made"),
                                       ("doomed", "its version is over")) if value[field]]
    return ", ".join(parts)


def atomic(value):
    """The number in an _Atomic field, which gdb shows as it is stored."""
    return int(value.cast(value.type.unqualified()))


def status_text(page):
    """What the agent tells a rank, and the rank its agent, in the memory that they share."""
    steps = [f"{name} {atomic(page[name + '_step'])}" for name in ("protected", "committed", "published", "failed")]
    text = f"at step {atomic(page['current_step'])}: {', '.join(steps)}"
    if atomic(page["lost_node"]):
        text += f"; node {atomic(page['lost_node']) - 1} is lost"
    if atomic(page["over_term"]):
        text += f"; over since term {atomic(page['over_term'])}"
    return text


class TextPrinter:
    def __init__(self, value, text):
        self.value, self.text = value, text

    def to_string(self):
        return self.text(self.value)


PRINTERS = {"version": version_text, "hash128": hash_text, "slot": slot_text, "shared_status": status_text}


def printer_of(value):
    kind = value.type.strip_typedefs()
    text = PRINTERS.get(kind.tag) if kind.code == gdb.TYPE_CODE_STRUCT else None
    return TextPrinter(value, text) if text else None


# ---- the agent -------------------------------------------------------------------------------------------------------


def main_loop():
    """The event loop of the main thread. It is needed after each turn, so that its frame has it in every kind of build."""
    min(gdb.selected_inferior().threads(), key=lambda thread: thread.num).switch()
    frame = gdb.newest_frame()
    while frame is not None and frame.name() != "loop_run":
        frame = frame.older()
    if frame is None:
        raise gdb.GdbError("the main thread is in no event loop: is this a tierckptd, with its debug information?")
    return frame.read_var("loop")


def find_agent():
    """The agent is what its own timers, which the loop has in a list, are given."""
    kind = gdb.lookup_type("struct agent").pointer()
    timer = main_loop()["timers"]
    while timer:
        agent = timer["ctx"].cast(kind)
        try:
            if timer in (agent["tick"], agent["slow_tick"]):
                return agent
        except gdb.MemoryError:
            pass
        timer = timer["next"]
    raise gdb.GdbError("the agent's timers do not run: it has not begun, or is about to end")


def agent_of(argument):
    return gdb.parse_and_eval(argument) if argument else find_agent()


class AgentFunction(gdb.Function):
    """$tierckpt_agent(): the agent of this process."""

    def __init__(self):
        super().__init__("tierckpt_agent")

    def invoke(self):
        return find_agent()


class Tierckpt(gdb.Command):
    """Looks into an agent of Tierckpt."""

    def __init__(self):
        super().__init__("tierckpt", gdb.COMMAND_DATA, prefix=True)


class Slots(gdb.Command):
    """tierckpt slots [AGENT]: the slots of this node in the term under way, each with its state and version."""

    def __init__(self):
        super().__init__("tierckpt slots", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        context = agent_of(argument)["term_context"]
        if not context:
            raise gdb.GdbError("no term is registered yet, so there are no slots")
        node, setup = context["node"], context["setup"]
        print(f"term {int(setup['term'])} on node {int(setup['self'])} of {int(setup['node_count'])}, "
              f"{int(setup['rank_count'])} ranks: {version_text(node['decision']['watermark'])} is committed")
        for number in range(int(node["slot_total"])):
            slot = node["slots"][number]
            shard = setup["shards"][int(slot["shard"])]
            print(f"slot {number:3}  shard {int(slot['shard'])} {hash_text(shard['id'])}  {slot_text(slot)}")


class Ranks(gdb.Command):
    """tierckpt ranks [AGENT]: the trainers that are connected, and the memory that each shares with the agent."""

    def __init__(self):
        super().__init__("tierckpt ranks", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        client = agent_of(argument)["clients"]
        lines = []
        while client:
            if client["trainer"]:
                text = status_text(client["shared"].dereference()) if client["shared"] else "shares no memory yet"
                lines.append((int(client["rank"]), f"pid {int(client['process']['pid'])}  {text}"))
            client = client["next"]
        for rank, text in sorted(lines):
            print(f"rank {rank}  {text}")


gdb.pretty_printers.append(printer_of)
AgentFunction()
Tierckpt()
Slots()
Ranks()
