/* env.h - the variables that ddprun sets for a rank, and those of its own that libddp reads.
 *
 * The first part has torchrun's names and string forms, so that scripts written for it run. Without
 * them libddp takes a process's rank from variables of other launchers, which have no names here:
 *   Open MPI     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK,
 *                OMPI_COMM_WORLD_LOCAL_SIZE; PMIX_NAMESPACE as the job's name
 *   MPICH, PMI   PMI_RANK, PMI_SIZE, PMI_FD, MPI_LOCALRANKID, MPI_LOCALNRANKS
 *   Slurm        SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_NUM_TASKS,
 *                SLURM_STEP_NUM_NODES, SLURM_STEP_TASKS_PER_NODE; SLURM_JOB_ID, SLURM_STEP_ID and
 *                SLURM_RESTART_COUNT as the job's name
 * What schedulers give ddprun is in ddprun-environment(7). */
#ifndef DDP_ENV_H
#define DDP_ENV_H

/* torchrun's */
#define DDP_ENV_RANK                      "RANK"
#define DDP_ENV_WORLD_SIZE                "WORLD_SIZE"
#define DDP_ENV_LOCAL_RANK                "LOCAL_RANK"
#define DDP_ENV_LOCAL_WORLD_SIZE          "LOCAL_WORLD_SIZE"
#define DDP_ENV_GROUP_RANK                "GROUP_RANK"       /* this node among the nodes */
#define DDP_ENV_GROUP_WORLD_SIZE          "GROUP_WORLD_SIZE" /* nodes */
#define DDP_ENV_ROLE_NAME                 "ROLE_NAME"
#define DDP_ENV_ROLE_RANK                 "ROLE_RANK"
#define DDP_ENV_ROLE_WORLD_SIZE           "ROLE_WORLD_SIZE"
#define DDP_ENV_MASTER_ADDR               "MASTER_ADDR" /* the generation's store */
#define DDP_ENV_MASTER_PORT               "MASTER_PORT"
#define DDP_ENV_RESTART_COUNT             "TORCHELASTIC_RESTART_COUNT" /* the generation */
#define DDP_ENV_MAX_RESTARTS              "TORCHELASTIC_MAX_RESTARTS"
#define DDP_ENV_RUN_ID                    "TORCHELASTIC_RUN_ID"
#define DDP_ENV_USE_AGENT_STORE           "TORCHELASTIC_USE_AGENT_STORE" /* "True" or "False" */
#define DDP_ENV_ERROR_FILE                "TORCHELASTIC_ERROR_FILE"
#define DDP_ENV_SIGNALS_TO_HANDLE         "TORCHELASTIC_SIGNALS_TO_HANDLE"
#define DDP_ENV_TIMER_FILE                "TORCHELASTIC_TIMER_FILE" /* a pipe for torch's timers */
#define DDP_ENV_NCCL_ASYNC_ERROR_HANDLING "TORCH_NCCL_ASYNC_ERROR_HANDLING"
#define DDP_ENV_NCCL_RAS_ADDR             "NCCL_RAS_ADDR" /* NCCL's own; set on nodes with GPUs */
#define DDP_ENV_OMP_NUM_THREADS           "OMP_NUM_THREADS"
#define DDP_ENV_CUDA_VISIBLE_DEVICES      "CUDA_VISIBLE_DEVICES" /* --gpus, --virtual-local-rank */
#define DDP_ENV_HIP_VISIBLE_DEVICES       "HIP_VISIBLE_DEVICES"  /* the same, if ddprun has it */

/* ddprun's own, set for ranks */
#define DDP_ENV_NODE_FD                                                                            \
    "DDP_NODE_FD"                           /* a socket to the node's ddprun: libddp gets the node's
                                         shared memory over it (segments/node_socket.h) */
#define DDP_ENV_GENERATION "DDP_GENERATION" /* as TORCHELASTIC_RESTART_COUNT */
#define DDP_ENV_TERM                                                                               \
    "DDP_TERM" /* of the coordinator that began the generation: with DDP_GENERATION it only grows */
#define DDP_ENV_MASTER_HOST                                                                        \
    "DDP_MASTER_HOST" /* with --store-relay, where MASTER_ADDR is this node's relay: the node with
                         the store and rank 0 */
#define DDP_ENV_NODE_DIR                                                                           \
    "DDP_NODE_DIR" /* a directory of the job on this node, the same for all generations; removed
                      when the job ends here. ddp_torch has files there that outlive a rank */
#define DDP_ENV_WARM                                                                               \
    "DDP_WARM" /* with --warm, for the bootstrap, which removes it: no script sees it */
#define DDP_ENV_WORKER_SERVER                                                                      \
    "DDP_WORKER_SERVER" /* with --worker-server, for what Python runs before the script: the
                           directory of the sockets */
#define DDP_ENV_NUMA_NODES                                                                         \
    "DDP_NUMA_NODES" /* the memory node that each rank of this node is bound to, in their order:
                        "0,0,1,1"; -1: none, or several. Set if ranks are bound */
#define DDP_ENV_CHECKPOINT_FD                                                                      \
    "DDP_CHECKPOINT_FD" /* readable once a checkpoint is requested. A byte written
                      into it: this rank has saved its state */
#define DDP_ENV_ENCRYPT_FD                                                                         \
    "DDP_ENCRYPT_FD" /* with --encrypt and several nodes: of a sealed memfd with the secret of the
                        job, from which libddp derives its keys (segments/data_secret.h) */
#define DDP_ENV_MEMORY_FD                                                                          \
    "DDP_MEMORY_FD" /* with --memory-checkpoints: of memory that the ranks of the node share and
                       ddprun keeps open (segments/checkpoint_memory.h); ddp_memory_save() and
                       ddp_torch.save() use it */
#define DDP_ENV_PROGRESS_FD                                                                        \
    "DDP_PROGRESS_FD" /* of a pipe: a line "step N" written into it reports that N steps of the
                         training are complete, since its very beginning */
#define DDP_ENV_PMI_FD                                                                             \
    "PMI_FD" /* for MPICH and ABI-compatible MPIs: a socket on which ddprun speaks PMI-1 */
#define DDP_ENV_PMI_RANK "PMI_RANK" /* with it: the same as RANK, and as WORLD_SIZE */
#define DDP_ENV_PMI_SIZE "PMI_SIZE"
#define DDP_ENV_STANDBY                                                                            \
    "DDP_STANDBY" /* this process waits in ddp_run() for a rank that fails, to take its place; it
                     has no RANK until then. A number: bytes that a rank has in its segment */
#define DDP_ENV_CHECKPOINT_SIGNAL                                                                  \
    "DDP_CHECKPOINT_SIGNAL" /* the number of the signal that comes with it; ignored by default */

/* ddprun's own, read by it */
#define DDP_ENV_PLUGIN_DIR                                                                         \
    "DDP_PLUGIN_DIR" /* the directory of its plug-ins and of the program that it copies to other
                        hosts; default: where they are installed */

/* the same; not passed on to the ranks */
#define DDP_ENV_TOKEN                                                                              \
    "DDP_TOKEN" /* the secret that authenticates the nodes of a job to each other */

/* read by ddp_torch */
#define DDP_ENV_LIBRARY "DDP_LIBRARY" /* the path of libddp.so.0 */

/* libddp's own. ddp_init() fails with DDP_EENV if a value is invalid; an empty value counts as not
 * set */
#define DDP_ENV_JOB_ID                                                                             \
    "DDP_JOB_ID" /* a name for the job when ranks are started by hand:
                                                     any text, the same on all ranks of one job */
#define DDP_ENV_NODE_RANK                                                                          \
    "DDP_NODE_RANK" /* this node among the nodes, if the launcher has no variable for it and
                       several "nodes" are one machine */
#define DDP_ENV_SOCKET_IFNAME                                                                      \
    "DDP_SOCKET_IFNAME" /* the network interfaces through which other nodes reach this one:
                           "eth0,eth1", or without some, "^docker" */
#define DDP_ENV_SOCKET_LANES                                                                       \
    "DDP_SOCKET_LANES" /* connections between two ranks of different nodes that large exchanges
                          are striped over: "1" to "16"; "auto": ranks
                          measure whether more than one pays */
#define DDP_ENV_ENCRYPT                                                                            \
    "DDP_ENCRYPT" /* "1": connections to ranks on other nodes are encrypted; "0". ddprun --encrypt
                     sets it */
#define DDP_ENV_ENCRYPT_KEY_FILE                                                                   \
    "DDP_ENCRYPT_KEY_FILE" /* where ranks take their key from, instead of ddprun: a file of 64 or
                              more hexadecimal digits, for its owner only */
#define DDP_ENV_SEGMENT_BYTES                                                                      \
    "DDP_SEGMENT_BYTES"               /* address space for one rank's ddp_alloc(); pages
                                                     cost memory only once they are written */
#define DDP_ENV_TIMEOUT "DDP_TIMEOUT" /* of a step of a collective: "90", "1.5s", "10m" */
#define DDP_ENV_PROGRESS_THREAD                                                                    \
    "DDP_PROGRESS_THREAD"       /* "1": a thread executes asynchronous calls; "0" */
#define DDP_ENV_CMA  "DDP_CMA"  /* "0": don't read peers' memory with process_vm_readv(2); "1" */
#define DDP_ENV_SIMD "DDP_SIMD" /* "scalar", "avx2" or "avx512": no faster kernels than that */
#define DDP_ENV_BACKEND                                                                            \
    "DDP_BACKEND" /* "nccl": ddp_init() creates a communicator of the ranks' GPUs, or fails; "cpu":
                     calls with a stream fail; unset: the first such call creates it */
#define DDP_ENV_NCCL_ABORT_TIMEOUT                                                                 \
    "DDP_NCCL_ABORT_TIMEOUT" /* how long NCCL may take to abort a communicator of a broken job:
                                "30" s; after that the process must be replaced */
#define DDP_ENV_TRACE                                                                              \
    "DDP_TRACE" /* a timeline of the training in Chrome's trace format: rank R writes FILE with ".R"
                   before the last suffix */
#define DDP_ENV_TUNING                                                                             \
    "DDP_TUNING" /* which algorithm is the fastest from which size on: the path of a table that
                    ddp-perf --tune printed, or the table itself */

#endif
