#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles what Verilator wrote for a unit test through ccache. It writes there where a block's sources are, which is
# another place in each clone: they are taken relative to the clone (CCACHE_BASEDIR), so that what one clone has compiled
# is found by another.
set -eu
: "${CCACHE_BASEDIR:?expected the folder of the clone, as the Makefile exports it}"
grep -lF "$CCACHE_BASEDIR/" ./*.cpp ./*.h 2> /dev/null | while read -r file; do
    sed "s|$CCACHE_BASEDIR/||g" "$file" > "$file.$$"
    mv "$file.$$" "$file"
done
exec ccache "$@"
