# packages.sh - sourced by ./quickstart, ./test and .ci/run: installs what is missing, and says so.
#
#   need_packages build test     make sure the packages of these sets are there
#
# Uses apt on Debian and its relatives, with sudo where we are not root.  Elsewhere it names what is
# missing and stops, so that nothing fails later for an unnamed reason.

packages_missing() { # sets... -> "package<TAB>why" lines
    local set package why
    while read -r set package why; do
        case " $* " in *" $set "*) ;; *) continue ;; esac
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            printf '%s\t%s\n' "$package" "$why"
    done < <(grep -v '^#' tools/packages.txt)
}

need_packages() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "This is no Debian-like system: the packages in tools/packages.txt must be installed by hand." >&2
        return 0
    fi
    local missing sudo=""
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    echo "Missing packages, to be installed with apt:"
    printf '%s\n' "$missing" | while IFS=$'\t' read -r package why; do
        printf '  %-22s %s\n' "$package" "$why"
    done
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Not root and no sudo.  As root, run:" >&2
            echo "  apt-get install -y $(printf '%s\n' "$missing" | cut -f1 | tr '\n' ' ')" >&2
            return 1
        fi
        echo "(sudo may ask for your password)"
        sudo=sudo
    fi
    local log
    log=$(mktemp)
    # shellcheck disable=SC2046
    if ! { $sudo apt-get update -q &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            $(printf '%s\n' "$missing" | cut -f1); } >"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "apt failed; its whole output is in $log" >&2
        return 1
    fi
    rm -f "$log"
}
