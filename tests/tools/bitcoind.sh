#!/usr/bin/env bash
# Prints the path of a bitcoind without a wallet; bitcoin-cli lies beside it. Builds both the first time (five minutes
# on two cores, 9 MB kept) from the source that the crate libbitcoinkernel-sys carries, because no package of apt, npm or
# pip has them. ./test builds this one. Needs cargo; gets the rest with apt-get.
#
#   bitcoind=$(tests/tools/bitcoind.sh)
set -euo pipefail
source "$(dirname "$0")/once.sh"

crate=0.4.1 core=31.99.0   # the crate, and what its Core calls itself: the development line after 31
sha256=345d18a1ce19a1becfcaaa066e3a60e9c7813ef5c23ea8c20704ca4ba1a46339
folder=$cache/bitcoind-$core-$crate

build() {
    local folder=$1 work=$1/build
    command -v cargo >/dev/null 2>&1 || die "bitcoind's source comes with cargo, which is missing; see https://rustup.rs"
    packages g++:g++ cmake:cmake ninja:ninja-build /usr/include/boost/version.hpp:libboost-dev

    mkdir -p "$work/src"
    touch "$work/src/lib.rs"
    printf '[package]\nname = "source"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nlibbitcoinkernel-sys = "=%s"\n[workspace]\n' \
        "$crate" >"$work/Cargo.toml"
    say "fetching libbitcoinkernel-sys $crate"
    (cd "$work" && cargo vendor --quiet vendor >/dev/null) || die "cargo could not fetch libbitcoinkernel-sys $crate"
    grep -q "\"package\":\"$sha256\"" "$work/vendor/libbitcoinkernel-sys/.cargo-checksum.json" ||
        die "libbitcoinkernel-sys $crate is not the one that this script knows"

    say "building bitcoind $core, about five minutes; the log is $folder.log"
    {
        cmake -S "$work/vendor/libbitcoinkernel-sys/bitcoin" -B "$work/out" -G Ninja \
            -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g0" -DBUILD_TESTS=OFF -DENABLE_WALLET=OFF -DENABLE_IPC=OFF \
            -DENABLE_EXTERNAL_SIGNER=OFF -DBUILD_BITCOIN_BIN=OFF -DWITH_EMBEDDED_ASMAP=OFF -DINSTALL_MAN=OFF \
            -DWITH_CCACHE=OFF &&
            nice ninja -C "$work/out" bitcoind bitcoin-cli
    } >"$folder.log" 2>&1 || { tail -n 30 "$folder.log" >&2; die "the build failed; all of it is in $folder.log"; }
    strip -o "$folder/bitcoind" "$work/out/bin/bitcoind"
    strip -o "$folder/bitcoin-cli" "$work/out/bin/bitcoin-cli"
    "$folder/bitcoind" -version | head -n 1 >&2
    rm -rf "$work" "$folder.log"
}

once "$folder" build
echo "$folder/bitcoind"
