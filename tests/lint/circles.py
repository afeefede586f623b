"""Finds circles among the source files of the product, and among its folders: circles.py BUILD, from the top of the tree.

A room is a C file together with the header of its name. An arrow leads from one room to another that it includes, or from
which its object file takes a function or variable. The includes are read from the text and everything else from the symbol
tables of the built objects, so that no C has to be parsed and nothing has to be guessed. A circle is a strongly connected
component of two rooms or more. Folders are looked at in the same way, with the files of a folder that has subfolders, such
as the agent's composition, each for itself.
"""

import collections
import pathlib
import re
import subprocess
import sys

TOPS = [pathlib.Path(name) for name in ("include", "runtime", "tiers", "recovery")]
INCLUDE_FOLDERS = [pathlib.Path(name) for name in ("include", "runtime", ".")]


def room(file):
    return str(file.with_suffix(""))


def includes(sources):
    """(room, room, header) for each include of one source by another."""
    for source in sources:
        for header in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE):
            found = [folder / header for folder in [source.parent, *INCLUDE_FOLDERS] if folder / header in sources]
            if found:
                yield room(source), room(found[0]), header


def objects(build, sources):
    """{object file: room}"""
    found = {}
    for file in build.rglob("*.o"):
        source = re.sub(r"CMakeFiles/[^/]+\.dir/", "", str(file.relative_to(build).with_suffix("")))
        if pathlib.Path(source) in sources:
            found[file] = room(pathlib.Path(source))
    return found


def symbols(rooms_of_objects):
    """(room, room, name) for each name that one object takes from another."""
    homes, wanted = collections.defaultdict(set), set()
    for file, place in rooms_of_objects.items():
        listing = subprocess.run(["nm", "-gP", file], check=True, capture_output=True, text=True).stdout
        for name, kind in (line.split()[:2] for line in listing.splitlines()):
            if kind in "Uw":
                wanted.add((place, name))
            else:
                homes[name].add(place)
    return [(place, home, name) for place, name in wanted for home in homes[name]]


def draw(arrows):
    """{room: {room that it needs: the names that it takes from there}}"""
    needs = collections.defaultdict(lambda: collections.defaultdict(set))
    for place, other, name in arrows:
        if place != other:
            needs[place][other].add(name)
    return needs


def reached(needs, start):
    """All rooms that a room needs, directly or through others."""
    seen, todo = set(), [start]
    while todo:
        new = needs.get(todo.pop(), {}).keys() - seen
        seen |= new
        todo.extend(new)
    return seen


def find_circles(needs):
    reach = {place: reached(needs, place) for place in list(needs)}
    return {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}


def folder(place, parents):
    """The folder of a room, or the room itself where its folder has subfolders."""
    parent = str(pathlib.Path(place).parent)
    return place if parent in parents else parent


def complain(circle, needs):
    """Names the arrows that close a circle."""
    print(f"a circle of {len(circle)}: {', '.join(sorted(circle))}")
    for place in sorted(circle):
        for other in sorted(circle & needs[place].keys()):
            print(f"    {place} needs {other}: {', '.join(sorted(needs[place][other])[:6])}")


def main():
    build = pathlib.Path(sys.argv[1])
    sources = {file for top in TOPS for file in top.rglob("*") if file.suffix in (".c", ".h", ".cu")}
    built = objects(build, sources)
    arrows = [*includes(sources), *symbols(built)]
    parents = {str(file.parent.parent) for file in sources}
    by_folder = [(folder(a, parents), folder(b, parents), f"{pathlib.Path(a).name} takes {name}") for a, b, name in arrows]
    found = 0
    for needs in (draw(arrows), draw(by_folder)):
        for circle in sorted(find_circles(needs), key=sorted):
            complain(circle, needs)
            found += 1
    unbuilt = {room(s) for s in sources if s.suffix != ".h"} - set(built.values())
    if unbuilt:
        print(f"not built here, so only their includes were followed: {', '.join(sorted(unbuilt))}")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
