#!/usr/bin/env bash
# Prints the path of a bitcoind with a wallet; bitcoin-cli lies beside it. Builds both the first time (ten minutes on two
# cores, 12 MB kept). The one of bitcoind.sh has no wallet, because the crate that its source comes from leaves the wallet
# out; only the very first version of that crate has it, and that is Bitcoin Core of 2025, the development line after 28.
# Its univalue is missing there and comes from the later crate; what else is missing is not needed. One test uses it, the
# import from a live Core. ./test does not build it: it takes it with --if-built, and leaves that test out otherwise.
# Needs cargo; gets the rest with apt-get.
#
#   bitcoind=$(tests/tools/bitcoin-wallet.sh)
#   bitcoind=$(tests/tools/bitcoin-wallet.sh --if-built)   nothing is printed, and nothing built, if it is not there
set -euo pipefail
source "$(dirname "$0")/once.sh"

crate=0.0.1 core=28.99.0
sha256=5a7da32f3bc72e876b92ace44cb4dda867990f82615c9777ac9ba75e7fce29d8
later=0.4.1
later_sha256=345d18a1ce19a1becfcaaa066e3a60e9c7813ef5c23ea8c20704ca4ba1a46339
folder=$cache/bitcoin-wallet-$core-$crate

if [ "${1:-}" = --if-built ]; then
    [ ! -e "$folder/complete" ] || echo "$folder/bitcoind"
    exit 0
fi

# fetch VERSION SHA256 FOLDER: the crate's source, in FOLDER/VERSION.
fetch() {
    local work=$3/fetch-$1
    mkdir -p "$work/src"
    touch "$work/src/lib.rs"
    printf '[package]\nname = "source"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nlibbitcoinkernel-sys = "=%s"\n[workspace]\n' \
        "$1" >"$work/Cargo.toml"
    (cd "$work" && cargo vendor --quiet vendor >/dev/null) || die "cargo could not fetch libbitcoinkernel-sys $1"
    grep -q "\"package\":\"$2\"" "$work/vendor/libbitcoinkernel-sys/.cargo-checksum.json" ||
        die "libbitcoinkernel-sys $1 is not the one that this script knows"
    mv "$work/vendor/libbitcoinkernel-sys" "$3/$1"
}

build() {
    local folder=$1 work=$1/build source=$1/build/$crate/bitcoin
    command -v cargo >/dev/null 2>&1 || die "the source comes with cargo, which is missing; see https://rustup.rs"
    packages g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config /usr/include/boost/version.hpp:libboost-dev \
        /usr/include/event2/event.h:libevent-dev /usr/include/sqlite3.h:libsqlite3-dev

    mkdir -p "$work"
    say "fetching libbitcoinkernel-sys $crate and $later"
    fetch "$crate" "$sha256" "$work"
    fetch "$later" "$later_sha256" "$work"
    cp -r "$work/$later/bitcoin/src/univalue" "$source/src/"
    # CMake asks for these; nothing is built from them.
    mkdir -p "$source"/{test,doc,src/test/util,contrib/devtools}
    touch "$source"/{test,doc,src/test/util}/CMakeLists.txt "$source"/contrib/{filter-lcov.py,devtools/split-debug.sh.in}

    say "building bitcoind $core with a wallet, about ten minutes; the log is $folder.log"
    {
        cmake -S "$source" -B "$work/out" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g0" \
            -DBUILD_TESTS=OFF -DENABLE_WALLET=ON -DWITH_BDB=OFF -DENABLE_EXTERNAL_SIGNER=OFF -DINSTALL_MAN=OFF \
            -DWITH_CCACHE=OFF &&
            nice ninja -C "$work/out" bitcoind bitcoin-cli
    } >"$folder.log" 2>&1 || { tail -n 30 "$folder.log" >&2; die "the build failed; all of it is in $folder.log"; }
    strip -o "$folder/bitcoind" "$work/out/src/bitcoind"
    strip -o "$folder/bitcoin-cli" "$work/out/src/bitcoin-cli"
    "$folder/bitcoind" -version | head -n 1 >&2
    rm -rf "$work" "$folder.log"
}

once "$folder" build
echo "$folder/bitcoind"
