# setup.sh - sourced by ./quickstart and ./test, in the project's folder: packages and builds.
#
#   need_packages build test     make sure the packages of these sets of tools/packages.txt are there
#   build_logged LOG COMMAND     run a build with its output in LOG; on failure show what matters of it
#
# Packages come from apt on Debian and its relatives, with sudo where we are not root.  Elsewhere what
# is missing is named, so that nothing fails later for an unnamed reason.

wanted_packages() { # sets... -> "package why" lines
    local set package why
    grep -v '^#' tools/packages.txt | while read -r set package why; do
        case " $* " in *" $set "*) printf '%s %s\n' "$package" "$why" ;; esac
    done
}

missing_packages() { # sets... -> "package why" lines
    local package why
    wanted_packages "$@" | while read -r package why; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            printf '%s %s\n' "$package" "$why"
    done
}

print_packages() { # "package why" lines on stdin
    local package why
    while read -r package why; do printf '  %-22s %s\n' "$package" "$why"; done
}

need_packages() {
    local missing sudo="" log
    local -a names
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        missing=$(for tool in cc cmake ninja pkg-config protoc-c; do
            command -v "$tool" >/dev/null || printf ' %s' "$tool"
        done)
        [ -n "$missing" ] || return 0 # libraries are CMake's to find
        echo "There is no apt here, and these programs are missing:$missing" >&2
        echo "What the project needs, by the names of Debian's packages:" >&2
        wanted_packages "$@" | print_packages >&2
        return 1
    fi
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    mapfile -t names <<<"$(cut -d' ' -f1 <<<"$missing")"
    echo "Missing packages, to be installed with apt:"
    printf '%s\n' "$missing" | print_packages
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "We are not root and there is no sudo.  As root, run:" >&2
            echo "  apt-get update && apt-get install -y --no-install-recommends ${names[*]}" >&2
            return 1
        fi
        echo "(sudo may ask for your password)"
        sudo=sudo
    fi
    log=$(mktemp)
    echo "Installing (a minute or two; the log is $log) ..."
    if ! { $sudo apt-get update -q &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            "${names[@]}"; } >"$log" 2>&1; then
        grep -E '^(E|Err|W):|^sudo|^Sorry' "$log" | tail -10 >&2 || tail -10 "$log" >&2
        echo "Installing failed (no network? no permission?); the whole log is $log" >&2
        return 1
    fi
    rm -f "$log"
}

build_logged() { # log command...
    local log=$1 interesting
    shift
    mkdir -p "$(dirname "$log")" && : >"$log" || {
        echo "Cannot write $log: the build needs a folder that it may write to." >&2
        return 1
    }
    "$@" >"$log" 2>&1 && return 0
    interesting=$(grep -E -A4 'error:|CMake Error|undefined reference|command not found|No space left|Killed' "$log" |
        cut -c1-200 | head -25)
    printf '%s\n' "${interesting:-$(tail -15 "$log")}" >&2
    echo "The build failed; the whole log is $log" >&2
    return 1
}
