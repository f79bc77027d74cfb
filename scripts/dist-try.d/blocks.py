"""Prints the `sh` blocks of a section of docs/install.md as one script that stops at the first error: blocks.py PAGE HEADING"""

import re
import sys

page, heading = sys.argv[1:]
with open(page, encoding="utf-8") as file:
    sections = re.split(r"^(?=#{2,3} )", file.read(), flags=re.M)
texts = [text for text in sections if text.split("\n", 1)[0].lstrip("# ") == heading]
if len(texts) != 1:
    raise SystemExit(f"{page} has {len(texts)} sections {heading!r}")
blocks = re.findall(r"^```sh\n(.*?)^```", texts[0], re.M | re.S)
if not blocks:
    raise SystemExit(f"{page}: {heading!r} has no commands")
print("set -e\n" + "".join(blocks))
