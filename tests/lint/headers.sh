#!/bin/sh
# Each header compiles alone; public ones also as plain C11, and all of them together as older C and as C++. A header that the source
# file of its module includes first compiles alone whenever that file is built.
#   headers.sh SOURCE_ROOT [CC]
set -eu
cd "$1"
cc=${2:-cc}
bad=0
headers=$(git ls-files '*.h' 2>/dev/null || find . -name '*.h' -not -path './build*')
for header in $headers; do
    case ${header#./} in # those that are not the product's may need what is not installed, such as CUDA
    tests/* | bench/cuda/*) continue ;;
    esac
    ! grep -q '^#include <\(cuda\|nccl\|pmix\)' "$header" || continue # compiled where that library is
    [ "$(grep -m 1 '^#' "${header%.h}.c" 2>/dev/null)" != "#include \"${header##*/}\"" ] || continue
    if ! echo "#include \"$header\"" |
        $cc -x c -std=gnu17 -D_GNU_SOURCE -I. -Iinclude -Wall -Wextra -Werror -Wno-unused-function \
            -fsyntax-only -; then
        echo "$header does not compile alone"
        bad=1
    fi
done
for header in include/ddp/*.h; do # users may have C11 without GNU, or C++
    if ! printf "#include \"%s\"\nint x;\n" "$header" | $cc -x c -std=c11 -pedantic -Iinclude -Wall -Wextra -Werror -fsyntax-only -; then
        echo "$header is not plain C11"
        bad=1
    fi
done
all_as() { # LANGUAGE STANDARD COMPILER
    for header in include/ddp/*.h; do echo "#include \"$header\""; done |
        "$3" -x "$1" "-std=$2" -pedantic -Iinclude -Wall -Wextra -Werror -fsyntax-only - && return
    echo "include/ddp does not compile as $2"
    bad=1
}
for std in c90 c99; do all_as c $std "$cc"; done
if command -v c++ >/dev/null; then
    for std in c++98 c++11; do all_as c++ $std c++; done
fi
exit $bad
