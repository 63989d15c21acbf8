#!/usr/bin/env bash
# Installs what a few tests can use, when this is an easy thing to do: as root, with apt-get, and only what is missing.
# Never fails: a test that misses its tool is skipped and says so. ISR_SYSTEM_PACKAGES=no leaves the system alone.
set -u

has() { command -v "$1" >/dev/null 2>&1; }

missing=()
has node || missing+=(nodejs)
has cc || missing+=(gcc libc6-dev)
has chromium || has chromium-browser || has google-chrome || missing+=(chromium)

if [ "${#missing[@]}" -eq 0 ] || [ "${ISR_SYSTEM_PACKAGES:-yes}" = no ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! has apt-get; then
    echo "note: some tests will be skipped for want of: ${missing[*]}"
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
install() { timeout 180 apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1; }
updated=no
for package in "${missing[@]}"; do
    install "$package" && continue
    if [ "$updated" = no ]; then
        timeout 60 apt-get update -qq >/dev/null 2>&1
        updated=yes
        install "$package" && continue
    fi
    echo "note: could not install $package; tests that need it will be skipped"
done
exit 0
