"""Small files of many types, written here, and how the file-type model sees a file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

ENDS = 1024
"""Bytes of the beginning, and of the end of a file, that the model sees."""
PADDING = 256

PYTHON = '''import os
from collections import defaultdict


class Tree:
    """A tree of nodes."""

    def __init__(self, root=None):
        self.root = root
        self.children = defaultdict(list)

    def add(self, parent, child):
        if child in self.children[parent]:
            raise ValueError(f"{child} is there already")
        self.children[parent].append(child)


if __name__ == "__main__":
    tree = Tree("a")
    for name in os.listdir("."):
        tree.add("a", name)
    print(tree.children)
'''

C = """#include <stdio.h>
#include <stdlib.h>

typedef struct node { int value; struct node *next; } node;

static node *push(node *head, int value) {
    node *fresh = malloc(sizeof(node));
    fresh->value = value;
    fresh->next = head;
    return fresh;
}

int main(int argc, char **argv) {
    node *list = NULL;
    for (int i = 0; i < argc; i++) {
        list = push(list, i);
        printf("%s\\n", argv[i]);
    }
    return 0;
}
"""

JAVASCRIPT = """const express = require("express");
const app = express();

function handler(req, res) {
  const { id } = req.params;
  if (!id) {
    return res.status(400).json({ error: "missing" });
  }
  res.send(`hello ${id}`);
}

app.get("/:id", handler);
app.listen(3000, () => console.log("listening"));
module.exports = { app };
"""

SHELL = """#!/bin/bash
set -euo pipefail
for file in *.txt; do
  if [ -f "$file" ]; then
    echo "found $file"
    grep -c "word" "$file" | sort | uniq > "$file.out"
  fi
done
export PATH="$HOME/bin:$PATH"
"""


def _html() -> str:
    body = "".join(f'<p class="x">Paragraph {i} <a href="/p/{i}">link</a></p>\n' for i in range(12))
    head = '<meta charset="utf-8">\n<title>A page</title>\n<style>body { margin: 0 }</style>'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}</body>\n</html>\n'


def _xml() -> str:
    items = "".join(f'  <item id="{i}"><name>n{i}</name><price>{i}</price></item>\n' for i in range(15))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<catalog>\n{items}</catalog>\n'


def _json() -> str:
    entries = [{"id": i, "tag": f"t{i}", "good": i % 2 == 0} for i in range(12)]
    return json.dumps({"name": "sample", "version": [1, 2, 3], "nested": {"b": None, "list": entries}}, indent=2)


def _csv() -> str:
    file = io.StringIO()
    csv.writer(file).writerows([("id", "name", "price"), *((i, f"item{i}", f"{i * 1.5:.2f}") for i in range(40))])
    return file.getvalue()


def _png() -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(96)) for y in range(32))
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "hello " * 50)
        archive.writestr(zipfile.ZipInfo("b.bin"), bytes(range(256)))
    return file.getvalue()


def documents() -> dict[str, bytes]:
    """Type, as the model calls it -> a file of that type."""
    texts = {"python": PYTHON, "c": C, "javascript": JAVASCRIPT, "shell": SHELL}
    texts |= {"html": _html(), "xml": _xml(), "json": _json(), "csv": _csv()}
    others = {"png": _png(), "zip": _zip(), "gzip": gzip.compress(PYTHON.encode() * 3, mtime=0)}
    return {kind: text.encode() for kind, text in texts.items()} | others


def beginning_and_end(content: bytes) -> dict[str, NDArray]:
    """A file as the model sees it: [1, 2048], its first and its last bytes without surrounding blanks."""
    row = np.full(2 * ENDS, PADDING, np.int32)
    first, last = content.lstrip()[:ENDS], content.rstrip()[-ENDS:]
    row[: len(first)] = np.frombuffer(first, np.uint8)
    row[2 * ENDS - len(last) :] = np.frombuffer(last, np.uint8)
    return {"bytes": row[None]}
