#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install Debian packages, as root, by the newest lists. apt refuses the second of two processes; those of others (a
# second clone's, or the machine's own daily ones) are waited for, ten minutes at most.
#   apt_install.sh PACKAGE...
set -eu
deadline=$(($(date +%s) + 600))

alone() {
  until said=$(LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@" 2>&1); do # in English, which is looked for
    case $said in
      *'Could not get lock'* | *'Unable to lock'*) ;;
      *) deadline=0 ;;
    esac
    if [ "$(date +%s)" -ge "$deadline" ]; then
      printf '%s\n' "$said"
      exit 1
    fi
    sleep 2
  done
  printf '%s\n' "$said"
}

alone apt-get update -q
alone apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"
