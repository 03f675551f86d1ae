"""python -m ddp_torch --cflags --libs: what a compiler has to know of the libddp that came with this package."""
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
WORDS = {
    "--cflags": ["-I" + os.path.join(FOLDER, "include")],
    # the file by its name: a wheel has no link libddp.so
    "--libs": [os.path.join(FOLDER, "libddp.so.0"), "-Wl,-rpath," + FOLDER],
}


def main():
    asked = sys.argv[1:]
    if not asked or any(word not in WORDS for word in asked):
        sys.exit("usage: python -m ddp_torch [--cflags] [--libs]")
    if not os.path.exists(os.path.join(FOLDER, "libddp.so.0")):
        sys.exit("this ddp_torch does not include libddp: use pkg-config ddp")
    print(*(flag for word in asked for flag in WORDS[word]))


if __name__ == "__main__":
    main()
