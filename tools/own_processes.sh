#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command that sees no processes but its own, which end with it: own_processes.sh COMMAND [ARGUMENT...]
# Ends with the command's status. Others than root are root in there.
set -eu
[ "$(id -u)" = 0 ] && user= || user=--map-root-user
# The first process in there takes in whoever loses its parent, and waits for it.
# shellcheck disable=SC2086
exec unshare $user --pid --fork --kill-child --mount-proc sh -c '"$@"; exit $?' sh "$@"
