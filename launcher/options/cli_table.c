#include "cli_table.h"

#include "launcher/job/job_spec.h"

#include <stddef.h>

const struct co_option cli_table[] = {
    {OPTION_NP, 'n', "np", "N", .subject = "Ranks", .weak = true,
     .help = "Start N ranks, the same number on each node. On one node the same as -p N."},
    {OPTION_NPROC_PER_NODE, 'p', "nproc-per-node", "N|auto|gpu|cpu", "PET_NPROC_PER_NODE",
     "Start N ranks on this node, which may be another number than on others; gpu: one per GPU; "
     "cpu: one per CPU that we are allowed; auto: "
     "gpu "
     "if there are any, else cpu. Without -n and -p: one per GPU, or a single one (as torchrun: a "
     "single one)."},
    {OPTION_NNODES, 'N', "nnodes", "N|MIN:MAX", "PET_NNODES",
     "Nodes of the job, each started by a ddprun of its own: N, or from MIN to MAX, coming and "
     "going while the job runs. Default: 1."},
    {OPTION_NODE_RANK, 0, "node-rank", "N", "PET_NODE_RANK",
     "Which of the nodes this is, from 0 on. Default: their names decide; static: 0."},
    {OPTION_STANDALONE, 0, "standalone", NULL, "PET_STANDALONE",
     "A job of this node alone, as without --nnodes: contradicts other values of it."},
    {OPTION_VIRTUAL_LOCAL_RANK, 0, "virtual-local-rank", NULL, "PET_VIRTUAL_LOCAL_RANK",
     "Each rank sees one device and LOCAL_RANK 0."},
    {OPTION_GPUS, 0, "gpus", "GPU,...", .weak = true,
     .help =
         "The ranks see these GPUs, in this order, and no other: 2,4,7. As many ranks, if it is "
         "not said how many."},
    {OPTION_BIND_TO, 0, "bind-to", "none|core|cache|numa|socket", .weak = true,
     .help = "Bind each rank to CPUs near its GPU, without GPUs all over the machine: to cores of "
             "its own, one of the large caches, a NUMA node or a socket. Default: none."},
    {OPTION_NUMA_BINDING, 0, "numa-binding", "node|socket|exclusive|core-complex",
     .help = "torchrun's names for --bind-to numa, socket, core and cache."},
    {OPTION_REPORT_BINDINGS, 0, "report-bindings", .weak = true,
     .help = "Tell on stderr which CPUs each rank may run on."},

    {OPTION_MODULE, 'm', "module", NULL, "PET_MODULE", "PROGRAM is a Python module: python -u -m.",
     .subject = "Program"},
    {OPTION_NO_PYTHON, 0, "no-python", NULL, "PET_NO_PYTHON",
     "Execute PROGRAM itself, whatever its name and content."},
    {OPTION_RUN_PATH, 0, "run-path", NULL, "PET_RUN_PATH",
     "Run PROGRAM by Python's runpy.run_path."},
    {OPTION_LOCAL_RANK_ARG, 0, "local-rank-arg", "NAME", .weak = true,
     .help = "Put NAME=<local rank> in front of the arguments of PROGRAM, for scripts that read it "
             "there: --local-rank-arg=--local_rank or --local-rank-arg=--local-rank."},
    {OPTION_USE_ENV, 0, "use-env", .weak = true,
     .help = "Give the local rank by LOCAL_RANK only, as is done in any case without "
             "--local-rank-arg."},
    {OPTION_TEMPLATES, 0, "templates", "auto|yes|no", .weak = true,
     .help = "Fill in arguments that are a name in braces and nothing else: {rank}, {local_rank}, "
             "{world_size}, {local_world_size}, {node_rank}, {nnodes}, {master_addr}, {master_ip}, "
             "{master_port}, {run_id} and {generation}. auto (default): those of programs that are "
             "executed, not those of Python scripts, and none as torchrun."},
    {OPTION_WRAP, 0, "wrap", "[RANK,...:]COMMAND", .weak = true,
     .help = "Put COMMAND in front of what these ranks execute, or all: --wrap '0:gdb -ex run "
             "--args'. {rank} and its like are filled in anywhere in it."},
    {OPTION_START_METHOD, 0, "start-method", "spawn|fork|forkserver", "PET_START_METHOD",
     "Accepted; has no effect: each rank is a process of its own."},
    {OPTION_OMP, 0, "omp", "N", .weak = true,
     .help =
         "Set OMP_NUM_THREADS to N, even if it is set already; 0: leave it alone. Without --omp it "
         "is set where it is not: to the allowed CPUs divided by the ranks (as torchrun: to 1 if "
         "there are several ranks)."},
    {OPTION_WARM, 0, "warm", "restarts|start", .optional = true, .weak = true,
     .help = "Fork Python ranks from a process that has imported what they import: those of a "
             "restart (default), or the first, too (start)."},
    {OPTION_MPI, 0, "mpi", "auto|pmi1|none", .weak = true,
     .help =
         "How the ranks of a program of MPI find each other. auto (default): by PMI-1 if it was "
         "linked with MPICH or one of its kin; one of Open MPI is refused. pmi1: in any case, "
         "also those of a script. none: ddprun has nothing to do with it."},

    {OPTION_RDZV_BACKEND, 0, "rdzv-backend", "NAME", "PET_RDZV_BACKEND",
     "How several nodes meet. c10d: at --rdzv-endpoint, whichever node that leads to; static: at "
     "the node with rank 0, --node-rank 0, whose --master-addr and --master-port are given. "
     "Default: static if one of these options is given, else c10d (as torchrun: static).",
     .subject = "Names, meeting"},
    {OPTION_RDZV_ENDPOINT, 0, "rdzv-endpoint", "HOST[:PORT]", "PET_RDZV_ENDPOINT",
     "Where nodes meet: one of them, or a ddp-rendezvous. Port: 29400, static: --master-port. "
     "On one node static takes the port for MASTER_PORT."},
    {OPTION_RDZV_ID, 0, "rdzv-id", "ID", "PET_RDZV_ID",
     "The job's name, TORCHELASTIC_RUN_ID, the same on all nodes. Default: a random one; as "
     "torchrun without --standalone, and for static with several nodes: none."},
    {OPTION_RDZV_CONF, 0, "rdzv-conf", "KEY=VALUE,...", "PET_RDZV_CONF",
     "Settings of the meeting: join_timeout, last_call_timeout, keep_alive_interval, "
     "keep_alive_max_attempt, is_host; static: timeout. On one node they have no effect."},
    {OPTION_ROLE, 0, "role", "NAME", "PET_ROLE", "The ranks' ROLE_NAME. Default: default."},
    {OPTION_MASTER_ADDR, 0, "master-addr", "ADDR", "PET_MASTER_ADDR",
     "static: the node with rank 0, as all others reach it. On one node it is this one, whatever "
     "is said: MASTER_ADDR is 127.0.0.1, or localhost if that is given."},
    {OPTION_MASTER_PORT, 0, "master-port", "PORT", "PET_MASTER_PORT",
     "The ranks' MASTER_PORT, and with static where nodes meet, by default 29500. Else, and 0: "
     "any free one."},
    {OPTION_LOCAL_ADDR, 0, "local-addr", "ADDR", "PET_LOCAL_ADDR",
     "The address at which other nodes reach this one, also its name. Default: the address by "
     "which it reaches the endpoint. On one node it has no effect."},
    {OPTION_START_TIMEOUT, 0, "start-timeout", "TIME", .weak = true,
     .help = "How long nodes may take to come, or the endpoint to be reached: 600, 90s, 10m. "
             "Default: 10m."},
    {OPTION_JOIN_WINDOW, 0, "join-window", "TIME", .weak = true,
     .help = "With MIN:MAX nodes: how long to wait for more once MIN are there. Default: 3s (as "
             "torchrun: 30s)."},
    {OPTION_REJOIN_TIMEOUT, 0, "rejoin-timeout", "TIME", .weak = true,
     .help = "How long to wait for others when fewer than MIN nodes are left. Default: that of "
             "--start-timeout."},
    {OPTION_FAILOVER_TIMEOUT, 0, "rdzv-failover-timeout", "TIME", .weak = true,
     .help = "How long ranks run on while a lost endpoint is being replaced, where it can be: not "
             "with static and c10d. Default: 60s."},
    {OPTION_ADMIT_AT, 0, "admit-at", "now|checkpoint", .weak = true,
     .help = "When a node that comes later is let in: at once (default), all ranks being started "
             "again, or when the ranks have saved their state."},
    {OPTION_ADMIT_TIMEOUT, 0, "admit-timeout", "TIME", .weak = true,
     .help = "With --admit-at checkpoint: let it in after TIME, saved or not. Default: never."},
    {OPTION_TOKEN_FILE, 0, "token-file", "FILE", .weak = true,
     .help = "The secret by which nodes know each other. Default: DDP_TOKEN, else "
             "~/.config/ddprun/token, which is made where the home directory is shared."},
    {OPTION_REQUIRE_TOKEN, 0, "require-token", .weak = true,
     .help = "Refuse to meet other nodes without one."},
    {OPTION_STORE, 0, "store", "auto|agent|worker", .weak = true,
     .help =
         "Who serves the store at MASTER_ADDR:MASTER_PORT: agent: ddprun; worker: the rank 0 of "
         "the script; auto (default): ddprun if there are several ranks."},
    {OPTION_STORE_ALLOW, 0, "store-allow", "ADDR[/BITS],...", .weak = true,
     .help = "Who may use the store besides the job's nodes: addresses and networks."},

    {OPTION_HOSTS, 'H', "hosts", "HOST[:SLOTS],...", .subject = "Hosts", .weak = true,
     .help = "Start the job on these hosts, by ssh: node1:8,node2:8, user@node[01-16]. Their order "
             "is that of the nodes; SLOTS are ranks."},
    {OPTION_HOSTFILE, 0, "hostfile", "FILE", .weak = true,
     .help = "The same from a file: a HOST a line, also with slots=N, max-slots=N, port=N."},
    {OPTION_EXPORT, 'x', "export", "NAME[=VALUE]", .weak = true, .value_max = JOB_VARIABLE_MAX,
     .help = "Set a variable for the ranks; without VALUE, pass on this one to the hosts, too. May "
             "be given again."},
    {OPTION_WDIR, 'C', "wdir", "DIR", .weak = true,
     .help = "Start in DIR. Default: the current folder, on all hosts."},
    {OPTION_SSH_COMMAND, 0, "ssh-command", "COMMAND", .weak = true,
     .help = "How hosts are reached: words in front of HOST and a command. Default: DDPRUN_SSH, "
             "else ssh, with options that let it ask nothing."},
    {OPTION_CONNECT_TIMEOUT, 0, "connect-timeout", "TIME", .weak = true,
     .help = "How long a host may take to answer. Default: 30s."},
    {OPTION_BCAST, 0, "bcast", "auto|never|always", .weak = true,
     .help = "Send ddprun to hosts reached by ssh: where there is none of this version (auto, the "
             "default), never, or always."},

    {OPTION_MAX_RESTARTS, 0, "max-restarts", "N[/TIME]", "PET_MAX_RESTARTS",
     "Start all ranks again after up to N failures, or up to N within TIME: 3, 3/10m. Default: 0.",
     .subject = "Restarts"},
    {OPTION_RESTART_AFTER_PROGRESS, 0, "restart-after-progress", "TIME", .optional = true,
     .weak = true,
     .help =
         "A failure after progress does not count for --max-restarts: after a completed step of "
         "libddp, or standard output written TIME or longer after the start. Default: 1m."},
    {OPTION_NO_RESTART_ON, 0, "no-restart-on", "CODE,...", .weak = true,
     .help =
         "Not after a failure with one of these exit codes: 1,2,130-143. A signal counts as 128 "
         "plus its number."},
    {OPTION_ON_FAILURE, 0, "on-failure", "replace|shrink|restart|abort", .weak = true,
     .help =
         "What follows a rank's failure while --max-restarts lasts. replace (default): only that "
         "rank is started again, if the program is one that goes on with it (ddp_run of "
         "libddp), else all of them; shrink: such a program goes on without it; restart: all "
         "ranks (default as torchrun); "
         "abort: the end."},
    {OPTION_RECOVERY_TIMEOUT, 0, "recovery-timeout", "TIME", .weak = true,
     .help = "When a rank is replaced: how long the others may take to notice, before all are "
             "started again. Default: 60s."},
    {OPTION_STANDBY, 0, "standby", "N", .weak = true,
     .help =
         "Keep N more processes of the program waiting in ddp_run of libddp, each for a rank that "
         "fails, whose place it takes. With --on-failure replace, on one node. Default: 0."},
    {OPTION_HANG_TIMEOUT, 0, "hang-timeout", "TIME", .weak = true,
     .help =
         "A rank that does not move for TIME while others wait for it is named, with the call "
         "that it is missing in, and ended: a failure as any other. Ranks of libddp are seen to "
         "move; others when they write something. Default: never."},
    {OPTION_EXCLUDE_NODE_AFTER, 0, "exclude-node-after", "N[/TIME]", .weak = true,
     .help =
         "A node on which ranks failed N times, or N times within TIME, takes no part any more; "
         "the others go on, or wait for another one. Default: never."},
    {OPTION_MONITOR_INTERVAL, 0, "monitor-interval", "SECONDS", "PET_MONITOR_INTERVAL",
     "Accepted; has no effect: the end of a rank is seen at once."},

    {OPTION_TIMEOUT, 0, "timeout", "TIME", .subject = "Ending", .weak = true,
     .help = "Stop the job after TIME and exit with 124."},
    {OPTION_ON_TERM, 0, "on-term", "TIME", .weak = true,
     .help = "After SIGTERM, and signals of --signals-to-handle: ask the ranks to save their state "
             "(DDP_CHECKPOINT_FD, ddp_checkpoint_requested of libddp), and pass the signal on when "
             "all have, or "
             "after TIME. Default: at once."},
    {OPTION_SHUTDOWN_TIMEOUT, 0, "shutdown-timeout", "TIME", "PET_SHUTDOWN_TIMEOUT",
     "How long ranks that were told to stop may take before they are killed: 90, 1.5s, 250ms, 10m. "
     "Default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30s after a signal, 5s after a rank failed."},
    {OPTION_SIGNALS_TO_HANDLE, 0, "signals-to-handle", "SIGNAL,...", "PET_SIGNALS_TO_HANDLE",
     "Signals that are passed on to the ranks and end the job, besides SIGTERM, SIGINT, SIGHUP and "
     "SIGQUIT, which always do."},
    {OPTION_SIGNAL_SCOPE, 0, "signal-scope", "process|group", .weak = true,
     .help = "Who gets the signals that are passed on: the rank's main process (default) or its "
             "whole process group."},

    {OPTION_TEE, 't', "tee", "STREAMS", "PET_TEE",
     "Ranks' output to files and here: 1 stdout, 2 stderr, 3 both, 0 none; by local rank: "
     "0:3,12:1.",
     .subject = "Input, output"},
    {OPTION_REDIRECTS, 'r', "redirects", "STREAMS", "PET_REDIRECTS", "The same to files only."},
    {OPTION_LOG_DIR, 0, "log-dir", "DIR", "PET_LOG_DIR",
     "Where these files go; /dev/null: there are none. Default: a new folder in TMPDIR, if -r or "
     "-t ask for files."},
    {OPTION_LOG_ROTATE, 0, "log-rotate", "SIZE[,KEEP]", .weak = true,
     .help =
         "Begin a new stdout.log or stderr.log when one gets larger than SIZE, and keep KEEP old "
         "ones, as stdout.log.1 and so on: 100M, 1G,5. Default: KEEP is 1."},
    {OPTION_LOCAL_RANKS_FILTER, 0, "local-ranks-filter", "RANK,...", "PET_LOCAL_RANKS_FILTER",
     "Show the output of these local ranks only; files are not touched by this."},
    {OPTION_STDOUT_FILTERS, 0, "duplicate-stdout-filters", "TEXT,...",
     "PET_DUPLICATE_STDOUT_FILTERS",
     "Copy lines of -t's stdout that hold one of these texts to filtered_stdout.log; ,, is a "
     "comma."},
    {OPTION_STDERR_FILTERS, 0, "duplicate-stderr-filters", "TEXT,...",
     "PET_DUPLICATE_STDERR_FILTERS", "The same of stderr, to filtered_stderr.log."},
    {OPTION_LABEL, 0, "label", "FORMAT", .optional = true, .weak = true,
     .help = "Begin each line of a rank with a label; {host}, {rank}, {local_rank} and "
             "{generation} are filled in. Without FORMAT '{host}:{rank}: ', which is also the "
             "default on a terminal with several ranks; --label= : never."},
    {OPTION_COLOR, 0, "color", "auto|always|never", .weak = true,
     .help = "Labels in colours, one for each rank. auto (default): on a terminal, unless NO_COLOR "
             "is set or TERM is dumb."},
    {OPTION_FOLD, 0, "fold", "TIME", .optional = true, .weak = true,
     .help =
         "Lines that several ranks write are one, with all of them in its label: n1:0-6,8: text. "
         "Lines are held for TIME for that. Default: 100ms."},
    {OPTION_STDIN, 0, "stdin", "RANK|none", .weak = true,
     .help = "Who reads ddprun's standard input; the others have /dev/null. Default: 0."},
    {OPTION_LOGS_SPECS, 0, "logs-specs", "NAME",
     .help = "Refused: it names a Python class, and there is no Python in ddprun."},

    {OPTION_EVENTS, 0, "events", "FILE", .subject = "Seeing", .weak = true,
     .help = "Append a JSON line to FILE for whatever happens to the job."},
    {OPTION_REPORT, 0, "report", "FILE", .weak = true,
     .help =
         "Write how the job ended, and why, to FILE as JSON: one for all nodes, or one for each "
         "with {node_rank} in FILE."},
    {OPTION_EVENT_LOG_HANDLER, 0, "event-log-handler", "null|console", "PET_EVENT_LOG_HANDLER",
     "console: torchrun's records of what happens, as lines of JSON on stderr. Default: null."},
    {OPTION_DRY_RUN, 0, "dry-run", .weak = true,
     .help = "Print each rank's command and environment, and start nothing."},
    {OPTION_VERBOSE, 'v', "verbose", .help = "Tell on stderr what is done.", .weak = true},
    {OPTION_HELP, 'h', "help", .help = "Print this text."},
    {OPTION_VERSION, 'V', "version", .help = "Print the version.", .weak = true},
    {0},
};
