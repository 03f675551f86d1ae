#include "cli_table.h"

#include "launcher/job/job_spec.h"

#include <stddef.h>

const struct co_option cli_table[] = {
    {OPTION_NP, 'n', "np", "N", .subject = "Ranks and program", .topic = "launch", .weak = true,
     .brief = "Number of workers in the whole job.",
     .help = "Number of workers (ranks) in the whole job, the same number on each node. On one "
             "node the same as -p N."},
    {OPTION_NPROC_PER_NODE, 'p', "nproc-per-node", "N|auto|gpu|xpu|cpu", "PET_NPROC_PER_NODE",
     "Number of workers per node; may differ between nodes. gpu, xpu: one per GPU. cpu: one per "
     "CPU "
     "that ddprun may use. auto: gpu if the node has GPUs, else cpu. Default without -n and -p: "
     "one per GPU, or 1 without GPUs (under the name torchrun: 1).",
     .brief = "Number of workers per node. Default: one per GPU."},
    {OPTION_MODULE, 'm', "module", NULL, "PET_MODULE",
     "Run PROGRAM as a Python module, as python -u -m does.",
     .brief = "Run PROGRAM as a Python module."},
    {OPTION_NO_PYTHON, 0, "no-python", NULL, "PET_NO_PYTHON",
     "Execute PROGRAM directly, without Python, whatever its name and content.",
     .brief = "Execute PROGRAM directly, without Python."},
    {OPTION_RUN_PATH, 0, "run-path", NULL, "PET_RUN_PATH",
     "Run the script PROGRAM with Python's runpy.run_path."},
    {OPTION_LOCAL_RANK_ARG, 0, "local-rank-arg", "NAME", .weak = true,
     .help = "Insert NAME=LOCAL_RANK before the arguments of PROGRAM, for scripts that were "
             "written for torch.distributed.launch: --local-rank-arg=--local-rank, or "
             "--local-rank-arg=--local_rank for scripts older than PyTorch 2.0."},
    {OPTION_USE_ENV, 0, "use-env", .weak = true,
     .help = "Accepted for torch.distributed.launch. It is the default: the local rank is in "
             "LOCAL_RANK only, unless --local-rank-arg is given."},
    {OPTION_TEMPLATES, 0, "templates", "auto|yes|no", .weak = true,
     .help = "Whether to replace arguments that are one of these names and nothing else: {rank}, "
             "{local_rank}, {world_size}, {local_world_size}, {node_rank}, {nnodes}, "
             "{master_addr}, {master_ip}, {master_port}, {run_id} and {generation}. auto "
             "(default): only for programs that are executed, not for Python scripts, and not "
             "under the name torchrun."},
    {OPTION_WRAP, 0, "wrap", "[RANK,...:]COMMAND", .weak = true,
     .help = "Run these ranks, or all, under COMMAND: --wrap '0:gdb -ex run --args'. {rank} and "
             "the other names of --templates are replaced anywhere in COMMAND."},
    {OPTION_MPI, 0, "mpi", "auto|pmi1|pmix|none", .weak = true,
     .help = "How the ranks of an MPI program find each other. auto (default): through PMI-1 if "
             "PROGRAM is linked with MPICH, MVAPICH2 or Intel MPI, and through PMIx if it is "
             "linked with Open MPI. pmi1, pmix: always through PMI-1 or PMIx, also for scripts. "
             "none: ddprun does nothing for MPI."},
    {OPTION_WARM, 0, "warm", "restarts|start", .optional = true, .weak = true,
     .help = "Fork Python ranks from a process that has already imported their modules: the "
             "ranks of a restart (restarts, the default), or also the first ones (start)."},
    {OPTION_EXPORT, 'x', "export", "NAME[=VALUE]", .weak = true, .value_max = JOB_VARIABLE_MAX,
     .brief = "Set a variable for the ranks.",
     .help = "Set an environment variable for the ranks. Without VALUE, also pass this variable "
             "on to other hosts. May be given several times."},
    {OPTION_WDIR, 'C', "wdir", "DIR", .weak = true,
     .help = "Working directory of the ranks. Default: the current directory, on all hosts."},
    {OPTION_STDIN, 0, "stdin", "RANK|none", .weak = true,
     .help = "The rank that reads ddprun's standard input. The other ranks read /dev/null. "
             "Default: 0."},
    {OPTION_ROLE, 0, "role", "NAME", "PET_ROLE",
     "User-defined role of the workers, their ROLE_NAME. Default: default."},
    {OPTION_START_METHOD, 0, "start-method", "spawn|fork|forkserver", "PET_START_METHOD",
     "Accepted for torchrun; no effect, because ddprun does not use Python's multiprocessing."},

    {OPTION_NNODES, 'N', "nnodes", "N|MIN:MAX", "PET_NNODES",
     "Number of nodes, or the range of nodes of an elastic job. A ddprun runs on each node. "
     "Default: 1.",
     .subject = "Nodes and hosts", .topic = "hosts",
     .brief = "Number of nodes, or a range. Default: 1."},
    {OPTION_NODE_RANK, 0, "node-rank", "N", "PET_NODE_RANK",
     "Rank of this node, 0-based. Default: the nodes are ordered by name; with --rdzv-backend "
     "static: 0."},
    {OPTION_STANDALONE, 0, "standalone", NULL, "PET_STANDALONE",
     "Run a job on this node only, as without --nnodes. Cannot be used together with --nnodes "
     "greater than 1."},
    {OPTION_HOSTS, 'H', "hosts", "HOST[:SLOTS],...", .weak = true,
     .brief = "Start the job on these hosts over ssh.",
     .help = "Start the job on these hosts over ssh: node1:8,node2:8, user@node[01-16]. Nodes "
             "have the order of the list; SLOTS is the number of ranks on a host."},
    {OPTION_HOSTFILE, 0, "hostfile", "FILE", .weak = true,
     .brief = "Start the job on the hosts of a file.",
     .help = "Start the job on the hosts of FILE. Each line has a HOST, and may have slots=N, "
             "max-slots=N and port=N."},
    {OPTION_SSH_COMMAND, 0, "ssh-command", "COMMAND", .weak = true,
     .help = "Reach hosts with COMMAND HOST ... instead of ssh. Default: DDPRUN_SSH, else ssh "
             "with options that prevent password prompts."},
    {OPTION_CONNECT_TIMEOUT, 0, "connect-timeout", "TIME", .weak = true,
     .help = "Give up on a host that does not answer within TIME. Default: 30s."},
    {OPTION_BCAST, 0, "bcast", "auto|never|always", .weak = true,
     .help = "Copy ddprun to the hosts: if this version is not installed there (auto, the "
             "default), never, or always."},

    {OPTION_RDZV_BACKEND, 0, "rdzv-backend", "static|c10d|etcd|etcd-v2", "PET_RDZV_BACKEND",
     "Rendezvous backend. c10d: the nodes rendezvous at --rdzv-endpoint, a node of the job or a "
     "ddp-rendezvous server. static: at the node with --node-rank 0, whose --master-addr and "
     "--master-port are given. etcd (etcd-v2 is the same): at an etcd server, so that another node "
     "can take over when the coordinator is lost. Default: static if --node-rank, --master-addr or "
     "--master-port is "
     "given, else c10d (under the name torchrun: static).",
     .subject = "Rendezvous of several nodes", .topic = "rendezvous"},
    {OPTION_RDZV_ENDPOINT, 0, "rdzv-endpoint", "HOST[:PORT][,...]", "PET_RDZV_ENDPOINT",
     "Rendezvous endpoint: a node of the job, a ddp-rendezvous server, or an etcd server. Default "
     "port: 29400; etcd: 2379; static: --master-port. On one node, static uses the port as "
     "MASTER_PORT. c10d: the job begins at the first endpoint of a list; "
     "nodes that start later also ask the others which node is the coordinator.",
     .brief = "Rendezvous endpoint, the same on all nodes."},
    {OPTION_RDZV_ID, 0, "rdzv-id", "ID", "PET_RDZV_ID",
     "Run ID: the name of the job, the same on all nodes. Required with several nodes, except "
     "with static. Default: random; for several static nodes, and under the name torchrun "
     "without --standalone: none.",
     .brief = "Run ID, the same on all nodes."},
    {OPTION_RDZV_CONF, 0, "rdzv-conf", "KEY=VALUE,...", "PET_RDZV_CONF",
     "Additional rendezvous configuration. All backends: join_timeout, last_call_timeout, "
     "keep_alive_interval, keep_alive_max_attempt, is_host. static: timeout. c10d: failover, "
     "endpoint, host_timeout. etcd: protocol, cacert, cert, key, etcd_prefix, user, password, "
     "password_file. No "
     "effect on one node."},
    {OPTION_MASTER_ADDR, 0, "master-addr", "ADDR", "PET_MASTER_ADDR",
     "static: address of the node with rank 0, as all nodes reach it. On one node MASTER_ADDR is "
     "127.0.0.1, or localhost if ADDR is localhost."},
    {OPTION_MASTER_PORT, 0, "master-port", "PORT", "PET_MASTER_PORT",
     "MASTER_PORT of the ranks; with static also the port of the rendezvous, 29500 by default. "
     "Otherwise the default is 0: any free port."},
    {OPTION_LOCAL_ADDR, 0, "local-addr", "ADDR", "PET_LOCAL_ADDR",
     "Address of this node, at which other nodes reach it; also its name in messages. Default: "
     "the address from which it reaches the endpoint. No effect on one node."},
    {OPTION_START_TIMEOUT, 0, "start-timeout", "TIME", .weak = true,
     .help = "How long to wait for the endpoint and for other nodes to join: 600, 90s, 10m. "
             "Default: 10m."},
    {OPTION_JOIN_WINDOW, 0, "join-window", "TIME", .weak = true,
     .help = "With --nnodes MIN:MAX: how long to wait for more nodes once MIN have joined. "
             "Default: 3s (under the name torchrun: 30s)."},
    {OPTION_FAILOVER_TIMEOUT, 0, "rdzv-failover-timeout", "TIME", .weak = true,
     .help = "With etcd: how long the ranks keep running while another node takes over from a "
             "lost coordinator. No effect with static and c10d. Default: 60s."},
    {OPTION_TOKEN_FILE, 0, "token-file", "FILE", .weak = true,
     .help = "File with the shared secret that authenticates the nodes of a job. Default: "
             "DDP_TOKEN, else ~/.config/ddprun/token, which ddprun creates if the home directory "
             "is on a network file system."},
    {OPTION_REQUIRE_TOKEN, 0, "require-token", .weak = true,
     .help = "Exit with 77 if there is no shared secret and the job has several nodes."},
    {OPTION_STORE, 0, "store", "auto|agent|worker", .weak = true,
     .help = "Which process serves the store at MASTER_ADDR:MASTER_PORT. agent: ddprun. worker: "
             "rank 0. auto (default): ddprun, if the job has several ranks."},
    {OPTION_STORE_ALLOW, 0, "store-allow", "ADDR[/BITS],...", .weak = true,
     .help = "Addresses and networks that may use the store, in addition to the nodes of the "
             "job."},
    {OPTION_STORE_RELAY, 0, "store-relay", "off|on", .weak = true,
     .help = "on: the ranks of a node reach the store through their ddprun, over one encrypted "
             "connection per node; no other process on the network can reach it. MASTER_ADDR is "
             "127.0.0.1, and DDP_MASTER_HOST the node with rank 0. Default: off."},
    {OPTION_ENCRYPT, 0, "encrypt", .weak = true,
     .help = "Encrypt what libddp's ranks on different nodes send each other (also with torch's "
             "backend ddp), under keys derived from the shared secret. Without one, exit with 77. "
             "Data of gloo, NCCL and MPI is not encrypted."},

    {OPTION_MAX_RESTARTS, 0, "max-restarts", "N[/TIME]", "PET_MAX_RESTARTS",
     "Maximum number of restarts before the job fails, in total or within TIME: 3, 3/10m. "
     "Default: 0.",
     .subject = "Restarts and elasticity", .topic = "restarts",
     .brief = "Maximum number of restarts. Default: 0."},
    {OPTION_ON_FAILURE, 0, "on-failure", "replace|shrink|restart|abort", .weak = true,
     .help = "What to do when a rank fails and restarts are left. replace (default): replace only "
             "that rank if the program uses ddp_run() of libddp, else restart all ranks. shrink: "
             "continue without it if the program uses ddp_run(). restart: restart all ranks "
             "(default under the name torchrun). abort: end the job."},
    {OPTION_RESTART_AFTER_PROGRESS, 0, "restart-after-progress", "TIME", .optional = true,
     .weak = true,
     .help = "Do not count failures after progress against --max-restarts. Progress is a "
             "completed step, as libddp or the program reports it, or output to stdout TIME or "
             "longer after the start. Default of TIME: 1m."},
    {OPTION_NO_PROGRESS, 0, "no-progress", "N", .weak = true,
     .help = "End the job with status 79 after N failed generations in a row that completed no "
             "new step: it would fail again, so do not requeue it. Requires reported steps, and "
             "--max-restarts N or more. Default: never."},
    {OPTION_NO_RESTART_ON, 0, "no-restart-on", "STATUS,...", .weak = true,
     .help = "End the job after a failure with one of these exit statuses: 1,2,130-143. A signal "
             "counts as 128 plus its number."},
    {OPTION_RECOVERY_TIMEOUT, 0, "recovery-timeout", "TIME", .weak = true,
     .help = "When a rank is replaced: restart all ranks if its peers do not notice within TIME. "
             "Default: 60s."},
    {OPTION_STANDBY, 0, "standby", "N", .weak = true,
     .help = "Keep N more processes of the program waiting in ddp_run() of libddp, to replace "
             "failed ranks sooner. Requires --on-failure replace; one node only. Default: 0."},
    {OPTION_MEMORY_CHECKPOINTS, 0, "memory-checkpoints", "SIZE", .weak = true,
     .help = "Keep what ranks save by ddp_torch.save() or ddp_memory_save() in memory that "
             "outlives them, and with several nodes a copy of it on another node. SIZE is the most "
             "that one rank saves: 2G. Needs up to 2 times SIZE for each rank of the node, with "
             "several nodes 4 times."},
    {OPTION_EXCLUDE_NODE_AFTER, 0, "exclude-node-after", "N[/TIME]", .weak = true,
     .help = "Exclude a node after N failures of its ranks, in total or within TIME. The other "
             "nodes continue, or wait for a new one. Default: never."},
    {OPTION_SPARES, 0, "spares", "N", .weak = true,
     .help =
         "Start N nodes more than --nnodes, which wait for a place: when a node is lost, one of "
         "them takes over. --nnodes counts active nodes. With --warm, spares import the modules "
         "of the script meanwhile. With -H, N of the hosts are spares. Default: 0."},
    {OPTION_SEGMENT, 0, "segment", "N", .weak = true,
     .help = "Only whole segments take part: groups of N nodes of one domain (--domain), for "
             "example of one NVLink domain or switch. The ranks of a domain are consecutive. MIN "
             "and MAX of --nnodes must be multiples of N. Default: domains do not matter."},
    {OPTION_DOMAIN, 0, "domain", "gpu|name:REGEX|env:NAME|LABEL", .weak = true,
     .help = "With --segment: the domain of this node. gpu (default): the NVLink domain of its "
             "GPUs, by NVML. name:REGEX: what the regular expression finds in the node's name, "
             "its first group if it has one. env:NAME: the value of a variable. LABEL: this text."},
    {OPTION_HEALTH_CHECK, 0, "health-check", "COMMAND", .weak = true,
     .help = "Run COMMAND with /bin/sh on each node before each generation that it would take part "
             "in. A node takes part only if COMMAND exits with 0; otherwise the last line of its "
             "output is the reason, and it is checked again later. Default: none."},
    {OPTION_HEALTH_TIMEOUT, 0, "health-timeout", "TIME", .weak = true,
     .help = "How long a check of a node's health may take; then the node is unhealthy. Default: "
             "60s."},
    {OPTION_HEALTH_BUILTIN, 0, "health-builtin", "CHECK,...", .weak = true,
     .help = "Checks of ddprun itself: gpu, disk[=DIR[:SIZE]], memory[=SIZE], clock[=TIME], "
             "network[=NAME], default, all, or none. Default: gpu,disk with --health-check, else "
             "none."},
    {OPTION_REJOIN_TIMEOUT, 0, "rejoin-timeout", "TIME", .weak = true,
     .help = "How long to wait for new nodes when fewer than MIN nodes are left, and how long a "
             "node without a coordinator looks for one. Default: the value of --start-timeout."},
    {OPTION_ADMIT_AT, 0, "admit-at", "now|checkpoint", .weak = true,
     .help = "When to admit a node that joins a running job. now (default): at once, with a "
             "restart of all ranks. checkpoint: after the ranks have saved their state."},
    {OPTION_ADMIT_TIMEOUT, 0, "admit-timeout", "TIME", .weak = true,
     .help = "With --admit-at checkpoint: admit the node after TIME even if the state is not "
             "saved. Default: never."},
    {OPTION_MONITOR_INTERVAL, 0, "monitor-interval", "SECONDS", "PET_MONITOR_INTERVAL",
     "Accepted for torchrun; no effect, because ddprun sees the exit of a rank at once."},

    {OPTION_TIMEOUT, 0, "timeout", "TIME", .subject = "Timeouts and signals",
     .topic = "termination", .weak = true, .brief = "Stop the job after TIME.",
     .help = "Stop the job after TIME and exit with 124."},
    {OPTION_SHUTDOWN_TIMEOUT, 0, "shutdown-timeout", "TIME", "PET_SHUTDOWN_TIMEOUT",
     "How long ranks may take to shut down before they are killed: 90, 1.5s, 250ms, 10m. Default: "
     "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30s after a signal and 5s after a failure."},
    {OPTION_ON_TERM, 0, "on-term", "TIME", .weak = true,
     .help = "After SIGTERM or a signal of --signals-to-handle, ask the ranks to save their state "
             "(DDP_CHECKPOINT_FD, ddp_checkpoint_requested() of libddp). Forward the signal when "
             "all ranks have done so, or after TIME. Default: forward it at once."},
    {OPTION_SIGNALS_TO_HANDLE, 0, "signals-to-handle", "SIGNAL,...", "PET_SIGNALS_TO_HANDLE",
     "Signals to forward to the ranks that also end the job. SIGTERM, SIGINT, SIGHUP and SIGQUIT "
     "always do."},
    {OPTION_SIGNAL_SCOPE, 0, "signal-scope", "process|group", .weak = true,
     .help = "Forward signals to the main process of a rank (process, the default), or to its "
             "whole process group."},

    {OPTION_TEE, 't', "tee", "STREAMS", "PET_TEE",
     "Tee the ranks' output into log files and to the console: 1 stdout, 2 stderr, 3 both, 0 "
     "none; or by local rank: 0:3,12:1.",
     .subject = "Output and log files", .topic = "output",
     .brief = "Output to log files and console: 3 for both streams."},
    {OPTION_REDIRECTS, 'r', "redirects", "STREAMS", "PET_REDIRECTS",
     "Redirect the ranks' output into log files only. STREAMS as for --tee.",
     .brief = "Output to log files only."},
    {OPTION_LOG_DIR, 0, "log-dir", "DIR", "PET_LOG_DIR",
     "Base directory of the log files. /dev/null: write none. Default: a new directory in "
     "TMPDIR, if -r or -t is given.",
     .brief = "Base directory of the log files."},
    {OPTION_LOG_ROTATE, 0, "log-rotate", "SIZE[,KEEP]", .weak = true,
     .help = "Rotate stdout.log and stderr.log when they exceed SIZE, and keep KEEP old files, "
             "stdout.log.1 and so on: 100M, 1G,5. Default of KEEP: 1."},
    {OPTION_LOCAL_RANKS_FILTER, 0, "local-ranks-filter", "RANK,...", "PET_LOCAL_RANKS_FILTER",
     "Only show output of these local ranks on the console. Log files are not affected."},
    {OPTION_STDOUT_FILTERS, 0, "duplicate-stdout-filters", "TEXT,...",
     "PET_DUPLICATE_STDOUT_FILTERS",
     "Copy the lines of --tee's stdout that contain one of these texts to filtered_stdout.log. "
     ",, stands for a comma."},
    {OPTION_STDERR_FILTERS, 0, "duplicate-stderr-filters", "TEXT,...",
     "PET_DUPLICATE_STDERR_FILTERS",
     "Copy matching lines of --tee's stderr to filtered_stderr.log."},
    {OPTION_LINE_PREFIX, 0, "log-line-prefix-template", "TEMPLATE", "PET_LOG_LINE_PREFIX_TEMPLATE",
     "The label of --tee's lines on the console. ${role_name}, ${rank}, ${local_rank} and "
     "${hostname} are replaced. Default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
     "'[${role_name}${local_rank}]:'."},
    {OPTION_LABEL, 0, "label", "FORMAT", .optional = true, .weak = true,
     .brief = "Label each line with its rank.",
     .help = "Begin each line of a rank with a label. {host}, {rank}, {local_rank} and "
             "{generation} are replaced. Without FORMAT: '{host}:{rank}: ', the default on a "
             "terminal with several ranks. --label= : no labels."},
    {OPTION_COLOR, 0, "color", "auto|always|never", .weak = true,
     .help = "Color the labels. auto (default): on a terminal, unless NO_COLOR is set or TERM is "
             "dumb."},
    {OPTION_FOLD, 0, "fold", "TIME", .optional = true, .weak = true,
     .help = "Print a line that several ranks write once, with all ranks in its label: "
             "n1:0-6,8: text. Lines are held for at most TIME. Default of TIME: 100ms."},
    {OPTION_LOGS_SPECS, 0, "logs-specs", "NAME",
     .help = "Accepted for torchrun: only the value default. Other values name Python classes "
             "and are refused."},

    {OPTION_GPUS, 0, "gpus", "GPU,...", .subject = "Placement on GPUs and CPUs",
     .topic = "placement", .weak = true, .brief = "GPUs that the ranks see: 2,4,7.",
     .help = "GPUs that the ranks see, in this order: 2,4,7. Without -n and -p, this is also the "
             "number of ranks."},
    {OPTION_BIND_TO, 0, "bind-to", "none|core|cache|numa|socket", .weak = true,
     .brief = "Bind each rank to CPUs near its GPU.",
     .help = "Bind each rank to CPUs near its GPU, or spread over the machine without GPUs: to "
             "cores of its own, one large cache, a NUMA node, or a socket. Default: none."},
    {OPTION_NUMA_BINDING, 0, "numa-binding", "node|socket|exclusive|core-complex",
     .help = "torchrun's names for --bind-to numa, socket, core and cache."},
    {OPTION_REPORT_BINDINGS, 0, "report-bindings", .weak = true,
     .help = "Print to stderr which CPUs each rank may use."},
    {OPTION_VIRTUAL_LOCAL_RANK, 0, "virtual-local-rank", NULL, "PET_VIRTUAL_LOCAL_RANK",
     "Set LOCAL_RANK to 0 for all workers, and CUDA_VISIBLE_DEVICES to one GPU for each; also "
     "HIP_VISIBLE_DEVICES if it is set."},
    {OPTION_OMP, 0, "omp", "N", .weak = true,
     .help = "Set OMP_NUM_THREADS to N, also if it is set already; 0: leave it unchanged. Default: "
             "if it is not set, the number of allowed CPUs divided by the number of ranks (under "
             "the name torchrun: 1 if there are several ranks)."},

    {OPTION_HANG_TIMEOUT, 0, "hang-timeout", "TIME|auto", .subject = "Monitoring and debugging",
     .topic = "debugging", .weak = true, .brief = "Report and end a rank that hangs for TIME.",
     .help = "End a rank that makes no progress for TIME while its peers wait for it, and report "
             "the call it is missing in and its stack. It counts as a failure. libddp ranks, and "
             "programs that report their steps, show their progress; other ranks are judged by "
             "their output. auto: 5 times the longest time without progress so far, 5m to 30m. "
             "Default: never."},
    {OPTION_ON_FAILURE_DUMP, 0, "on-failure-dump", "DIR", .weak = true,
     .help = "Write what is known about each failure to a directory below DIR, with a page "
             "index.html: stacks of all ranks before they are stopped, their last lines, NCCL's "
             "RAS, torch's flight recorder, and kernel messages. Delays the stop by up to 10 s."},
    {OPTION_WORKER_SERVER, 0, "worker-server", "auto|on|off", .weak = true,
     .help = "Start torch's worker server in Python ranks that import torch.distributed, without "
             "a change of the script: --hang-timeout, --on-failure-dump and ddpctl stack get "
             "stacks and the flight recorder from it. auto: with one of the first two. Default: "
             "auto."},
    {OPTION_EVENTS, 0, "events", "FILE", .weak = true,
     .brief = "Append job events to FILE as JSON lines.",
     .help = "Append job events to FILE as JSON lines."},
    {OPTION_REPORT, 0, "report", "FILE", .weak = true,
     .brief = "Write the job outcome to FILE as JSON.",
     .help = "Write the job outcome and its root cause to FILE as JSON: one report for the job, "
             "or one for each node if FILE contains {node_rank}."},
    {OPTION_HTTP, 0, "http", "[ADDR:]PORT", .weak = true,
     .brief = "Serve health, metrics, and a live page of the job.",
     .help = "While the job runs, each node serves HTTP at ADDR (default: localhost) and PORT (0: "
             "any free one): /healthz, /readyz, /metrics (Prometheus), /status (JSON), and a live "
             "page for a browser. The first node shows the ranks of all nodes. "
             "TORCHELASTIC_HEALTH_CHECK_PORT=PORT is the same."},
    {OPTION_HTTP_HOST, 0, "http-host", "NAME,...", .weak = true,
     .help = "Names by which clients may call --http and the coordinator's pages, besides "
             "addresses, localhost, and the name of this machine. *: any name. Other names are "
             "refused (DNS rebinding)."},
    {OPTION_TRAINJOB_PROGRESS, 0, "trainjob-progress", "STEPS", .weak = true,
     .help = "Post the progress of the job to the TrainJob of Kubeflow Trainer that it belongs to, "
             "at most every 5 s: STEPS steps are 100%. Requires the plug-in ddprun-trainjob.so."},
    {OPTION_EVENT_LOG_HANDLER, 0, "event-log-handler", "null|console", "PET_EVENT_LOG_HANDLER",
     "console: print torchrun's event records to stderr as JSON lines. Default: null."},
    {OPTION_DRY_RUN, 0, "dry-run", .weak = true,
     .brief = "Print what would be started; start nothing.",
     .help = "Print each rank's command and environment, and start nothing."},
    {OPTION_VERBOSE, 'v', "verbose", .weak = true, .brief = "Print what ddprun does to stderr.",
     .help = "Print what ddprun does to stderr."},

    {OPTION_HELP, 'h', "help", "TOPIC", .subject = "Help and version", .topic = "general",
     .optional = true, .takes_next = true,
     .brief = "Print this text (-h), or all options (--help).",
     .help = "-h: print the common options. --help: print all options, or the options of TOPIC; "
             "--help topics lists the topics."},
    {OPTION_VERSION, 'V', "version", .weak = true, .brief = "Print the version.",
     .help = "Print the version."},
    {OPTION_PRINT_COMPLETION, 0, "print-completion", "bash|zsh|fish|tcsh",
     .help = "Print the completion of the shell: eval \"$(ddprun --print-completion bash)\"."},
    {0},
};
