#!/usr/bin/env python3
"""Reads symbol graphs of Scripts/symbol-graphs.

    symbols.py check-documented GRAPHS   fails if a public symbol has no documentation
    symbols.py list GRAPHS FOLDER        writes FOLDER/MODULE.txt: the declarations of each module, one a line
"""

import json
import pathlib
import sys

# The compiler writes these members, and nobody can comment on them.
SYNTHESIZED = {"hashValue", "hash(into:)"}

# Some toolchains list these conformances, which every type has.
INVISIBLE = {"s:s16SendableMetatypeP", "s:s8CopyableP", "s:s9EscapableP"}


def symbols(graphs, module):
    for path in sorted((graphs / module).glob("*.symbols.json")):
        for symbol in json.loads(path.read_text())["symbols"]:
            if symbol["kind"]["identifier"] != "swift.extension" and "::SYNTHESIZED::" not in symbol["identifier"]["precise"]:
                yield symbol


def modules(graphs):
    return sorted(path.name for path in graphs.iterdir())


def is_documented(symbol):
    return any(line["text"].strip() for line in symbol.get("docComment", {}).get("lines", []))


def check_documented(graphs):
    missing = []
    for module in modules(graphs):
        for symbol in symbols(graphs, module):
            # Without a place in the sources, the compiler made it.
            if "location" not in symbol or symbol["names"]["title"] in SYNTHESIZED or is_documented(symbol):
                continue
            place = symbol["location"]
            missing.append(f"{place['uri'].split('/Sources/')[-1]}:{place['position']['line'] + 1}: {'.'.join(symbol['pathComponents'])}")
    for line in sorted(missing):
        print(f"not documented: Sources/{line}")
    return 1 if missing else 0


def declaration(symbol):
    text = "".join(fragment["spelling"] for fragment in symbol["declarationFragments"])
    owner = ".".join(symbol["pathComponents"][:-1])
    constraints = symbol.get("swiftExtension", {}).get("constraints", [])
    where = ", ".join(f"{c['lhs']} {c['kind']} {c['rhs']}" for c in constraints)
    return f"{owner + ': ' if owner else ''}{' '.join(text.split())}{' where ' + where if where else ''}"


def relationships(graphs, module):
    names, lines = {}, set()
    paths = sorted((graphs / module).glob("*.symbols.json"))
    for path in paths:
        for symbol in json.loads(path.read_text())["symbols"]:
            names[symbol["identifier"]["precise"]] = ".".join(symbol["pathComponents"])
    for path in paths:
        for relation in json.loads(path.read_text())["relationships"]:
            if relation["kind"] not in ("conformsTo", "inheritsFrom") or relation["target"] in INVISIBLE:
                continue
            if relation["source"] in names:
                target = names.get(relation["target"]) or relation.get("targetFallback", relation["target"])
                lines.add(f"{names[relation['source']]}: {relation['kind']} {target}")
    return lines


def list_symbols(graphs, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for module in modules(graphs):
        lines = {declaration(symbol) for symbol in symbols(graphs, module)} | relationships(graphs, module)
        (folder / f"{module}.txt").write_text("".join(f"{line}\n" for line in sorted(lines)))
    return 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "check-documented":
        sys.exit(check_documented(pathlib.Path(arguments[1])))
    if len(arguments) == 3 and arguments[0] == "list":
        sys.exit(list_symbols(pathlib.Path(arguments[1]), pathlib.Path(arguments[2])))
    sys.exit(__doc__)
