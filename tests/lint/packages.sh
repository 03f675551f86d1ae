#!/bin/bash
# scripts/packages.txt is well formed, and scripts/install-deps gives each package manager the names of its own column.
#   packages.sh SOURCE_ROOT
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

wrong() {
    echo "$*"
    bad=1
}

groups=$(printf 'base\ntorch-1.13\n' && sed -n 's/^#   --\([a-z-]*\) .*/\1/p' scripts/install-deps)
while read -r -a fields; do
    [[ ${#fields[@]} -gt 0 && ${fields[0]} != '#'* ]] || continue
    [[ ${#fields[@]} -eq 7 ]] || wrong "scripts/packages.txt: ${fields[*]}: ${#fields[@]} fields, expected 7"
    grep -qx "${fields[0]}" <<<"$groups" ||
        wrong "scripts/packages.txt: ${fields[*]}: scripts/install-deps has no option --${fields[0]}"
    [[ ${fields[1]} =~ ^((cmd|pc|hdr|py):.+|clang-rt:)$ ]] || wrong "scripts/packages.txt: ${fields[*]}: unknown check"
    if [[ ${fields[0]} == base && " ${fields[*]} " == *' - '* ]]; then
        wrong "scripts/packages.txt: ${fields[*]}: the base needs a package everywhere"
    fi
done <scripts/packages.txt
[[ -z $(grep -v '^#' scripts/packages.txt | awk '{ print $1, $2 }' | sort | uniq -d) ]] || wrong "scripts/packages.txt: a row is there twice"

# Each manager as a program that notes its arguments, on a PATH that lacks meson and libuv's pkg-config module.
mkdir "$work/bin"
for tool in bash cat cut dirname env grep head id mkdir sed sort tail uniq; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo" # asked for where the test does not run as root
chmod +x "$work/bin/sudo"
for manager in apt-get dnf zypper pacman apk; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\ncase $1 in -Q | info) exit 1 ;; esac\n' $manager "$work/calls" >"$work/bin/$manager"
    chmod +x "$work/bin/$manager"
    : >"$work/calls"
    # the packages do not come
    env -i HOME="$work" PATH="$work/bin" "$work/bin/bash" scripts/install-deps --yes >"$work/said" 2>&1 && wrong "$manager: expected a failure"
    for package in $(scripts/install-deps --list $manager | grep -e meson -e libuv); do
        grep -E "^$manager .*(install|add|-S)" "$work/calls" | grep -qw -e "$package" || wrong "$manager was not asked for $package: $(cat "$work/calls" "$work/said")"
    done
    grep -q "the build needs, and this machine lacks" "$work/said" || grep -q "cannot install meson" "$work/said" ||
        wrong "$manager: the failure does not say what is missing: $(cat "$work/said")"
    rm "$work/bin/$manager"
done

# A script that began without meson finds the one that scripts/install-deps has put into the cache directory.
# shellcheck disable=SC2016 # expanded by the shell inside
found=$(env -u XDG_CACHE_HOME HOME="$work" bash -c '. scripts/lib.sh && bin=$(build_tools_dir)/bin && mkdir -p "$bin" &&
    printf "#!/bin/sh\n" >"$bin/meson" && chmod +x "$bin/meson" && use_build_tools && command -v meson' scripts/check)
[[ $found == "$work/.cache/ddprun/build-tools/bin/meson" ]] || wrong "scripts/lib.sh finds meson as '$found'"
exit $bad
