"""Make one line of a shell script whose every command ends with a semicolon, as a string of C.

usage: pack.py SCRIPT.sh OUTPUT.c
"""
import sys

NOT_ALLOWED = "'\\!\t"  # what shells of some kind read inside of '...'


def main():
    with open(sys.argv[1], encoding="ascii") as f:
        words = [line.strip() for line in f if line.strip() and not line.lstrip().startswith("#")]
    line = " ".join(words)
    bad = sorted(set(line) & set(NOT_ALLOWED))
    if bad:
        sys.exit(f"{sys.argv[1]}: these may not be in it: {' '.join(map(repr, bad))}")
    text = line.replace('"', '\\"').replace("?", "\\?")  # "??-" is a trigraph
    with open(sys.argv[2], "w", encoding="ascii") as f:
        f.write(f'#include "launcher/remote/payload.h"\n\nconst char payload_script[] = "{text}";\n')


main()
