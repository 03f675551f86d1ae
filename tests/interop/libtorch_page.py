#!/usr/bin/env python3
"""docs/how-to/libtorch.md, followed by a new user: ddprun is installed below a prefix as docs/get-started/install.md has it, and the page's
program is built by the page's commands outside of the source, with CMake and without.

usage: libtorch_page.py --torch VERSION

Exit status 77, with the reason as the last line, if that PyTorch, CMake or a C++ compiler is not here.
"""
import argparse
import os
import re
import shutil
import sys
import tempfile

import run as interop

ROOT = os.path.dirname(os.path.dirname(interop.HERE))
GUIDE, INSTALL = "docs/how-to/libtorch.md", "docs/get-started/install.md"


def blocks(page, language, containing=""):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        found = re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    return [text for text in found if containing in text]


def only(found):
    [text] = found
    return text


def install(folder, env):
    """The page's commands, with --prefix, and with a build directory outside of the source."""
    prefix, commands = os.path.join(folder, "prefix"), only(blocks(INSTALL, "sh", "meson install -C build"))
    commands = commands.replace("meson setup build", f"meson setup {folder}/build-ddp --prefix {prefix}")
    commands = commands.replace("-C build", f"-C {folder}/build-ddp").replace("ldconfig", ": ")
    interop.run(["sh", "-ec", f"cd {ROOT}\n{commands}"], env)
    return prefix


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, choices=interop.VERSIONS)
    arguments = parser.parse_args()
    python, env = interop.find_python(arguments.torch)
    for program in "cmake", "c++", "meson", "pkg-config":
        if shutil.which(program) is None:
            interop.skip(f"not installed: {program}")
    interop.DEADLINE_S = 1800
    with tempfile.TemporaryDirectory(prefix="ddprun-libtorch-") as folder:
        prefix, project = install(folder, env), os.path.join(folder, "project")
        os.mkdir(project)
        for name, text in ("train.cpp", only(blocks(GUIDE, "cpp", "int main"))), ("CMakeLists.txt", only(blocks(GUIDE, "cmake"))):
            with open(os.path.join(project, name), "w", encoding="utf-8") as file:
                file.write(text)
        env["PATH"] = ":".join([prefix + "/bin", os.path.dirname(python), env["PATH"]])
        env["PKG_CONFIG_PATH"] = prefix + "/lib/pkgconfig"
        remedy = "-Wl,--allow-shlib-undefined"  # the page's, as is the next line
        env["TORCH_CUDA_ARCH_LIST"], env["LDFLAGS"] = "9.0", remedy
        for way in "cmake -B build", "pkg-config":
            commands = only(blocks(GUIDE, "sh", way)).replace("c++ ", f"c++ {remedy} ")
            out, _ = interop.run(["sh", "-ec", f"cd {project}\n{commands}"], env)
            if float(interop.require(out, r"(?m)^epoch 9: loss (\S+)$", "stdout")[1]) > 0.3:
                interop.fail("it learned too little")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
