#!/bin/sh
# Write the environment into $ENV_DIR/RANK, a variable ending in NUL.
exec env -0 >"$ENV_DIR/$RANK"
