# What the scripts beside this one share; they source it. Progress and errors go to stderr, for their stdout is a path.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/bursar

say() { echo "$*" >&2; }
die() { say "error: $*"; exit 1; }

# packages COMMAND-OR-FILE:PACKAGE…: installs the Debian packages whose command or file is not there.
packages() {
    local wanted missing=() as_root=()
    for wanted; do
        command -v "${wanted%:*}" >/dev/null 2>&1 || [ -e "${wanted%:*}" ] || missing+=("${wanted#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null 2>&1 || die "missing ${missing[*]}, and this system has no apt-get; install them by hand"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || die "missing ${missing[*]}; as root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install ${missing[*]}"
}

# once FOLDER FUNCTION: the function fills the folder, once, whoever else asks meanwhile. Half a folder is none: it is
# whole when `complete` is in it. (Not a rename at the end, because a Python venv cannot be moved.)
once() {
    local folder=$1 fill=$2 lock
    [ ! -e "$folder/complete" ] || return 0
    mkdir -p "$cache"
    exec {lock}>"$folder.lock"
    flock --nonblock "$lock" || { say "waiting for another run to fill $folder"; flock "$lock"; }
    if [ ! -e "$folder/complete" ]; then
        say "filling $folder"
        rm -rf "$folder"
        mkdir "$folder"
        # Its children must not inherit the lock: a daemon that one of them left would keep it for ever.
        "$fill" "$folder" {lock}>&-
        touch "$folder/complete"
    fi
    exec {lock}>&-
}
