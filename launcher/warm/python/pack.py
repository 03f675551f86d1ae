"""Write the modules given, in a zip file, as an array of C.

usage: pack.py OUTPUT.c HEADER NAME MODULE.py...

HEADER declares NAME, the array, and NAME_bytes.

Neither times nor anything else of this machine gets in: the same modules give the same bytes.
"""
import io
import os
import sys
import zipfile


def main():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:  # stored: Python may have been built without zlib
        for path in sys.argv[4:]:
            with open(path, "rb") as f:
                z.writestr(zipfile.ZipInfo(os.path.basename(path)), f.read())
    data = archive.getvalue()
    rows = (", ".join(map(str, data[i:i + 20])) for i in range(0, len(data), 20))
    header, name = sys.argv[2:4]
    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write(f'#include "{header}"\n\nconst unsigned char {name}[] = {{\n    ' + ",\n    ".join(rows)
                + f",\n}};\nconst size_t {name}_bytes = sizeof {name};\n")


main()
