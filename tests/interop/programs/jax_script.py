"""jax.distributed, set up from the environment that torchrun's workers have.

usage: torchrun --nproc-per-node 2 jax_script.py PORT

PORT   the port of JAX's own coordinator, in process 0
"""
import os
import sys

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{sys.argv[1]}", int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
gathered = multihost_utils.process_allgather(jnp.arange(3) + jax.process_index())
assert gathered.shape == (jax.process_count(), 3), gathered
print(f"process {jax.process_index()} of {jax.process_count()}: {int(gathered.sum())}", flush=True)
jax.distributed.shutdown()
