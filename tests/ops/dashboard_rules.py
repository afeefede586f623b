# SPDX-License-Identifier: Apache-2.0
"""The expressions of a Grafana dashboard as recording rules, which promtool can check: dashboard_rules.py FILE."""

import json
import sys

VARIABLES = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "1h", "$job_id": ".*", "$node": ".*"}


def plain(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    expressions = [plain(target["expr"]) for panel in panels for target in panel.get("targets", [])]
    left = [text for text in expressions if "$" in text]
    if left or not expressions:
        sys.exit(f"an unknown variable, or no expression: {left}")
    rules = [{"record": f"dashboard:{i}", "expr": text} for i, text in enumerate(expressions)]
    json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout, indent=1)  # JSON is YAML


main()
