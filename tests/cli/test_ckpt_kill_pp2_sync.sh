#!/bin/bash
# kill -9 of either of two ranks at every place of a save, while training waits for it;
# pipelined: each writes its own layers.
. "$(dirname "$0")/kill_lib.sh"
kill_everywhere 42 "TENSOR_WRITTEN 50,FILE_WRITTEN 3,FILE_SYNCED 2" Distributed.pp_degree=2 save_load.async_save=False
