#!/bin/bash
# kill -9 of either of two ranks at every place of a save, while training goes on;
# pipelined: each writes its own layers.
. "$(dirname "$0")/kill_lib.sh"
kill_everywhere 42 "COPIED 1,TENSOR_WRITTEN 50,FILE_WRITTEN 3,FILE_SYNCED 2" Distributed.pp_degree=2
