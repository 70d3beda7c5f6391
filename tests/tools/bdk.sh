#!/usr/bin/env bash
# Prints the path of bdk-yardstick: bdk_wallet as a program, whose source is in bdk/ beside this script. Builds it the
# first time, and again when its source or its Cargo.lock has changed. Needs cargo; gets a C compiler with apt-get.
#
#   yardstick=$(tests/tools/bdk.sh)
#   "$yardstick" sample --file sample.sqlite
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/once.sh"

version=$(sed -n 's/^bdk_wallet = .*version = "=\([^"]*\)".*/\1/p' "$here/bdk/Cargo.toml")
[ -n "$version" ] || die "$here/bdk/Cargo.toml does not say which bdk_wallet"
# The checksum of the checksums covers the files' names too, and no build that somebody ran there by hand.
sources=$(cd "$here/bdk" && sha256sum Cargo.toml Cargo.lock src/*.rs | sha256sum | cut -c1-16)
folder=$cache/bdk-$version-$sources

build() {
    local folder=$1 work=$1/build
    command -v cargo >/dev/null 2>&1 || die "bdk_wallet is built with cargo, which is missing; see https://rustup.rs"
    packages cc:gcc /usr/include/stdio.h:libc6-dev

    say "building bdk_wallet $version, about a minute; the log is $folder.log"
    (cd "$here/bdk" && CARGO_TARGET_DIR=$work cargo build --release --locked) >"$folder.log" 2>&1 ||
        { tail -n 30 "$folder.log" >&2; die "the build failed; all of it is in $folder.log"; }
    mv "$work/release/bdk-yardstick" "$folder"
    rm -rf "$work" "$folder.log"
}

once "$folder" build
echo "$folder/bdk-yardstick"
