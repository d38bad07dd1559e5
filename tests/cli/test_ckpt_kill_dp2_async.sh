#!/bin/bash
# kill -9 of either of two ranks at every place of a save, while training goes on;
# data-parallel: rank 1 is a replica, which writes nothing.
. "$(dirname "$0")/kill_lib.sh"
kill_everywhere 84 "COPIED 1" Distributed.dp_degree=2 batch_size.local_batch_size=3
