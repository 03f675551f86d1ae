"""mpi4py on MPICH.

usage: mpiexec.hydra -n 2 python mpi4py_script.py
"""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
numbers = numpy.full(1000, world.rank + 1.0)
total = numpy.empty_like(numbers)
world.Allreduce(numbers, total)
assert (total == world.size * (world.size + 1) / 2).all()
assert world.allgather({"rank": world.rank}) == [{"rank": r} for r in range(world.size)]
print(f"rank {world.rank} of {world.size}: {MPI.Get_library_version().split()[0]}", flush=True)
