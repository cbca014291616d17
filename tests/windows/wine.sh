#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a Windows program under Wine, with a prefix of its own, on the simulator.
#
#   tests/windows/wine.sh program.exe argument...
#   tests/windows/wine.sh --end        ends what Wine has left running
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$PATH:/usr/lib/wine" WINEPREFIX="$root/build/windows/prefix" WINEDEBUG=-all
export WINEDLLOVERRIDES='winedbg.exe=d;mscoree=;mshtml=' # a crash ends the program; nothing is to be downloaded
export IGNIS_SIM_FOLDER="$root/build/sim"
unset IGNIS_CUDA_LIBRARY IGNIS_NVRTC_LIBRARY IGNIS_CUBLAS_LIBRARY IGNIS_NCCL_LIBRARY # names of Linux
server=$(command -v wineserver64 || command -v wineserver)
if [ "$1" = --end ]; then
    exec $server -k
fi
$server -p >/dev/null 2>&1 # stays until --end: one that ends with its last program may cut off the next one. There is one already: it fails, and that is right
exec $(command -v wine64 || command -v wine) "$@"
