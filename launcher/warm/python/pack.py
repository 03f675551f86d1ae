"""Write the modules given, in a zip file, as an array of C.

usage: pack.py OUTPUT.c MODULE.py...

Neither times nor anything else of this machine gets in: the same modules give the same bytes.
"""
import io
import os
import sys
import zipfile


def main():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:  # stored: Python may have been built without zlib
        for path in sys.argv[2:]:
            with open(path, "rb") as f:
                z.writestr(zipfile.ZipInfo(os.path.basename(path)), f.read())
    data = archive.getvalue()
    rows = (", ".join(map(str, data[i:i + 20])) for i in range(0, len(data), 20))
    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write('#include "launcher/warm/warm.h"\n\nconst unsigned char warm_archive[] = {\n    '
                + ",\n    ".join(rows) + ",\n};\nconst size_t warm_archive_bytes = sizeof warm_archive;\n")


main()
