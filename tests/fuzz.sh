#!/usr/bin/env bash
# Fuzzes every decoder of the crates `tx`, `chain` and `devnet` with cargo-fuzz: each target's checked-in corpus, and then
# so many seconds of whatever libFuzzer makes of it. Fails on a panic, on an input that takes 10 seconds, and on one that
# needs more memory than it is worth (crates/tx/fuzz/src/budget.rs).
#
#   tests/fuzz.sh [SECONDS [TARGET…]]   5 seconds for each of all targets; 0 is the corpus alone
#   tests/fuzz.sh --shrink              takes out of the corpus what reaches nothing that the rest does not reach
#   tests/fuzz.sh --record              asks the devnets what the clients ask them, and keeps both sides as corpus
#
# cargo-fuzz comes from crates.io into ~/.cache/bursar, the first time. It works with the stable compiler: coverage is
# an LLVM pass, and no sanitizer is used, which would need a nightly one.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.13.2
folders=(crates/tx/fuzz crates/chain/fuzz crates/devnet/fuzz)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bursar
tool=$cache/cargo-fuzz-$version
found=$cache/fuzz-artifacts
mode=run
case "${1:-}" in
    --shrink | --record) mode=${1#--}; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "error: unknown option $1; there are --shrink and --record" >&2; exit 2 ;;
esac
seconds=5
if [ "$mode" = run ] && [ $# -gt 0 ]; then
    seconds=$1
    shift
    [[ $seconds =~ ^[0-9]+$ ]] || { echo "error: SECONDS is a whole number, not $seconds" >&2; exit 2; }
fi

# No other check sees a workspace of its own: its format, and that it is built of what the rest is built of.
packages() { awk -F'"' '/^name = /{name=$2} /^version = /{print name, $2}' "$1" | sort; }
names_of() { cut -d' ' -f1 | sort -u; }
for fuzz in "${folders[@]}"; do
    cargo fmt --manifest-path "$fuzz/Cargo.toml" --check
    strays=$(comm -23 <(packages "$fuzz/Cargo.lock") <(packages Cargo.lock))
    strays=$(join <(names_of <<<"$strays") <(packages Cargo.lock | names_of))
    [ -z "$strays" ] || { echo "error: $fuzz/Cargo.lock has other versions than Cargo.lock: "$strays >&2; exit 1; }
done

mkdir -p "$cache"
if [ ! -e "$tool/bin/cargo-fuzz" ]; then
    echo "installing cargo-fuzz $version into $tool"
    (
        flock 9
        # A folder of its own until it is complete; another run may have made it while this one waited.
        [ -e "$tool/bin/cargo-fuzz" ] || {
            rm -rf "$tool.new"
            cargo install --quiet --locked --root "$tool.new" --version "$version" cargo-fuzz
            rm -rf "$tool"
            mv "$tool.new" "$tool"
        }
    ) 9>"$tool.lock"
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/bursar-fuzz.XXXXXX")
built=$(mktemp -d "$cache/fuzz-built.XXXXXX")
running=()
clean_up() {
    trap '' INT TERM
    for child in "${running[@]}"; do
        # The program first: its shell waits for it.
        pkill -P "$child" 2>/dev/null || true
        kill "$child" 2>/dev/null && wait "$child" 2>/dev/null || true
    done
    rm -rf "$folder" "$built"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# All targets at once, apart from the other builds, whose flags differ. CARGO_TARGET_DIR would mix them again. Several
# checkouts share the folder, so the programs of this one are taken out (as links) before another can build its own.
unset CARGO_TARGET_DIR
build=$cache/fuzz-target
programs=$build/$(rustc -vV | sed -n 's/^host: //p')/debug
declare -A corpus   # of each target
names=()
for fuzz in "${folders[@]}"; do
    for name in $("$tool/bin/cargo-fuzz" fuzz list --fuzz-dir "$fuzz"); do
        names+=("$name")
        corpus[$name]=$fuzz/corpus/$name
    done
done
for target; do
    [ -n "${corpus[$target]:-}" ] || { echo "error: there is no target $target" >&2; exit 2; }
done
(
    flock 9
    for fuzz in "${folders[@]}"; do
        "$tool/bin/cargo-fuzz" fuzz build --dev --sanitizer none --codegen-units 16 --fuzz-dir "$fuzz" \
            --target-dir "$build"
    done
    for name in "${names[@]}"; do cp -l "$programs/$name" "$built/$name"; done
) 9>"$build.lock"

if [ "$mode" = record ]; then
    CRATES=crates "$built/record" -runs=0 2>/dev/null
    exit
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for name in "${names[@]}"; do
        [ "$name" = record ] || targets+=("$name")
    done
fi

limits=(-rss_limit_mb=1024 -timeout=10 -max_len=65536 -print_final_stats=1)

if [ "$mode" = shrink ]; then
    for target in "${targets[@]}"; do
        kept=${corpus[$target]}
        mkdir "$folder/$target"
        "$built/$target" -merge=1 "${limits[@]}" "$folder/$target" "$kept" >"$folder/log" 2>&1 ||
            { tail -n 20 "$folder/log" >&2; exit 1; }
        before=$(find "$kept" -type f | wc -l)
        rm -rf "$kept"
        mv "$folder/$target" "$kept"
        printf '%-18s %4d of %4d inputs stay\n' "$target" "$(find "$kept" -type f | wc -l)" "$before"
    done
    exit
fi

# fuzz_one TARGET: what it finds beyond the corpus goes with the folder; what fails stays in the cache.
fuzz_one() {
    local target=$1 kept=${corpus[$1]} more=(-max_total_time="$seconds") status=0
    [ "$seconds" -gt 0 ] || more=(-runs=0)
    mkdir -p "$folder/$target" "$kept" "$found/$target"
    "$built/$target" "${limits[@]}" "${more[@]}" -artifact_prefix="$found/$target/" \
        "$folder/$target" "$kept" >"$folder/$target.log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 40 "$folder/$target.log"
        printf '%s FAILED. Again: %s FILE, where FILE is named above\n' "$target" "$programs/$target"
        return "$status"
    fi
    printf '%-18s %8d inputs, %3d new, %4d MB\n' "$target" \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log")" \
        "$(find "$folder/$target" -type f | wc -l)" \
        "$(sed -n 's/^stat::peak_rss_mb: *//p' "$folder/$target.log")"
}

# As many at a time as there are processors.
failed=0
at_once=$(nproc)
for target in "${targets[@]}"; do
    if [ ${#running[@]} -ge "$at_once" ]; then
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
    fi
    fuzz_one "$target" &
    running+=("$!")
done
while [ ${#running[@]} -gt 0 ]; do
    wait "${running[0]}" || failed=1
    running=("${running[@]:1}")
done
exit "$failed"
