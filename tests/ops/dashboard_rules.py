# SPDX-License-Identifier: Apache-2.0
"""The expressions of a Grafana dashboard as recording rules, which promtool can check and evaluate:
dashboard_rules.py FILE. A rule is named by the id of its panel and the letter of its query."""

import json
import sys

VARIABLES = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "1h", "$job_id": ".*", "$node": ".*"}


def plain(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def cells(panel):
    """The places of the dashboard's grid that the panel covers."""
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def check_places(panels):
    """Grafana moves panels that overlap, and shows one of two with the same id."""
    covered, ids = {}, {}
    for panel in panels:
        other = next((covered[cell] for cell in cells(panel) if cell in covered), None) or ids.get(panel["id"])
        if other:
            sys.exit(f"the panels '{other}' and '{panel['title']}' have the same place or id")
        covered.update(dict.fromkeys(cells(panel), panel["title"]))
        ids[panel["id"]] = panel["title"]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    check_places(panels)
    rules = [{"record": f"dashboard:{panel['id']}:{target['refId']}", "expr": plain(target["expr"])}
             for panel in panels for target in panel.get("targets", [])]
    left = [rule["expr"] for rule in rules if "$" in rule["expr"]]
    if left or not rules:
        sys.exit(f"an unknown variable, or no expression: {left}")
    json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout, indent=1)  # JSON is YAML


main()
