"""The command lines that torchrun_same.py compares. Each states where the three differ on purpose; docs/reference/differences.md
has the reasons. Standard library only."""
import dataclasses
import os

HERE = os.path.dirname(os.path.abspath(__file__))
WHO = "torchrun", "link", "ddprun"
ANY_PORT = r"[1-9][0-9]{0,4}"
RANDOM_ID = r"[-0-9a-f]{36}"


@dataclasses.dataclass
class Case:
    name: str
    words: str  # of one command line, blanks between; @WORKER@, @PORT@ (a free one), @DIR@ (empty), @LOGS@ (to be made)
    ranks: int = 2  # that are started; 0: it is refused, or there is no program
    generations: int = 1
    env: dict = dataclasses.field(default_factory=dict)
    status: tuple = (0, 0, 0)  # of torchrun, the link, ddprun
    module: str = "run"  # or "launch": torch.distributed.launch
    ours: str = None  # the words for link and ddprun, if they are to be others
    unlike: dict = dataclasses.field(default_factory=dict)  # variable: a form for each of the three
    python: bool = True  # also compare how Python was called
    logs: bool = False  # log files are requested: torchrun always makes a directory, ddprun only then
    more: tuple = ()  # files that only ddprun leaves
    console: bool = True  # the output of the ranks is the same
    only: tuple = WHO
    since: str = ""  # the first version of torch whose torchrun has what is compared


SERVED = {"TORCHELASTIC_USE_AGENT_STORE": ("True", "False", "False")}  # a world of 1 has no store
NAMELESS = {"TORCHELASTIC_RUN_ID": (f"none|{RANDOM_ID}", "none", RANDOM_ID)}  # torchrun 2.15 names the job, 2.11 does not


def case(name, words, **more):
    """A job without an id is called none by torchrun; one of one rank gets no store from us."""
    unlike = {**NAMELESS, **(SERVED if more.get("ranks", 2) == 1 else {}), **more.pop("unlike", {})}
    return Case(name, words, unlike=unlike, **more)


def alone(name, words, **more):
    """With --standalone; the id is random for all."""
    more["unlike"] = {"TORCHELASTIC_RUN_ID": (RANDOM_ID,) * 3, **more.get("unlike", {})}
    return case(name, "--standalone " + words, **more)


def identified(name, words, run_id, **more):
    more["unlike"] = {"TORCHELASTIC_RUN_ID": (run_id,) * 3, **more.get("unlike", {})}
    return case(name, words, **more)


ERROR = '{"message": {"message": "E: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1795197468"}}}'
REFUSED = {"ranks": 0, "status": (2, 2, 2)}
CASES = [
    # how many, and where
    case("one_rank_by_default", "@WORKER@ a", ranks=1),
    alone("standalone", "--nproc-per-node 2 @WORKER@ a b"),
    alone("underscores", "--nproc_per_node=2 @WORKER@"),
    alone("unique_prefixes", "--nproc-per 2 --monitor-i 0.1 --max-r 0 --signals-t SIGTERM,SIGINT,SIGHUP,SIGQUIT @WORKER@"),
    alone("nodes_as_a_range", "--nnodes 1:1 --nproc-per-node 3 @WORKER@", ranks=3),
    alone("node_rank_0", "--nnodes=1 --node_rank=0 --nproc-per-node 2 @WORKER@"),
    case("options_of_last_and_first", "--nproc-per-node 3 --nproc-per-node 2 --master-port @PORT@ @WORKER@"),
    case("environment_gives_options", "@WORKER@", env={"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_ROLE": "r"},
         unlike={"TORCHELASTIC_RUN_ID": (RANDOM_ID,) * 3}),
    case("command_line_overrides_environment", "--nproc-per-node 2 --role b --master-port @PORT@ @WORKER@",
         env={"PET_NPROC_PER_NODE": "5", "PET_ROLE": "a", "PET_STANDALONE": "0"}),
    # rendezvous
    case("static_port", "--nproc-per-node 2 --master-addr 127.0.0.1 --master-port @PORT@ @WORKER@",
         unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": (r"127\.0\.0\.1",) * 3}),
    case("static_localhost", "--nproc-per-node 2 --master_addr localhost --master_port @PORT@ @WORKER@",
         unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": ("localhost",) * 3}),
    identified("static_endpoint", "--nproc-per-node 2 --rdzv-endpoint localhost:@PORT@ --rdzv-id j7 @WORKER@", "j7",
               unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": ("localhost",) * 3}),
    identified("c10d_endpoint", "--nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:@PORT@ "
               "--rdzv-id job-8 @WORKER@", "job-8"),
    identified("rendezvous_settings", "--nproc-per-node 2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --rdzv_id=a.b "
               "--rdzv_conf join_timeout=30,last_call_timeout=1,cas_backoff_max_seconds=0.5 @WORKER@", r"a\.b"),
    alone("local_address", "--nproc-per-node 2 --local-addr 127.0.0.1 @WORKER@"),
    alone("id_with_standalone", "--rdzv-id mine --nproc-per-node 2 @WORKER@",
          unlike={"TORCHELASTIC_RUN_ID": (RANDOM_ID, "mine", "mine")}),
    # names, restarts, settings that workers see
    alone("role", "--nproc-per-node 2 --role trainer @WORKER@"),
    alone("restarts", "--nproc-per-node 2 --max-restarts 3 @WORKER@"),
    alone("signals", "--nproc-per-node 2 --signals-to-handle SIGTERM,SIGUSR1 @WORKER@"),
    alone("unknown_signal", "--nproc-per-node 2 --signals-to-handle SIGTERM,SIGNONE @WORKER@", only=("torchrun", "link")),
    alone("options_without_effect", "--nproc-per-node 2 --start-method fork --monitor-interval 0.05 @WORKER@"),
    alone("event_log", "--nproc-per-node 2 --event-log-handler null @WORKER@"),
    alone("threads_are_kept", "--nproc-per-node 2 @WORKER@", env={"OMP_NUM_THREADS": "3"},
          unlike={"OMP_NUM_THREADS": ("3",) * 3}),
    alone("nccl_setting_is_kept", "--nproc-per-node 2 @WORKER@", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
    alone("store_of_rank_0", "--nproc-per-node 2 @WORKER@", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    alone("virtual_local_rank", "--nproc-per-node 2 --virtual-local-rank @WORKER@"),
    alone("virtual_local_rank_of_a_list", "--nproc-per-node 2 --virtual-local-rank @WORKER@",
          env={"CUDA_VISIBLE_DEVICES": "5,GPU-8a1c"}),
    alone("virtual_local_rank_of_a_list_of_hip", "--nproc-per-node 2 --virtual-local-rank @WORKER@", since="2.15",
          env={"CUDA_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "3, 4"}),
    alone("virtual_local_rank_of_an_empty_list_of_hip", "--nproc-per-node 2 --virtual-local-rank @WORKER@", since="2.15",
          env={"CUDA_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": ""}),
    alone("devices_are_inherited", "--nproc-per-node 2 @WORKER@", env={"CUDA_VISIBLE_DEVICES": "1,0"}),
    # the program and its words
    alone("no_python", "--nproc-per-node 2 --no-python @WORKER@ a -b --c=d", python=False),
    alone("module", "--nproc-per-node 2 -m dump a", env={"PYTHONPATH": HERE}),
    alone("run_path", "--nproc-per-node 2 --run-path @WORKER@ a --b", python=False),
    alone("options_of_the_program", "--nproc-per-node 2 @WORKER@ --nproc-per-node 3 --help -t 3 -- x"),
    alone("double_dash_before", "--nproc-per-node 2 -- @WORKER@ -x"),
    alone("double_dash_after", "--nproc-per-node 2 @WORKER@ -- -x"),
    alone("double_dash_after_a_module", "--nproc-per-node 2 -m dump -- -x --", env={"PYTHONPATH": HERE}),
    alone("double_dash_after_a_program", "--nproc-per-node 2 --no-python @WORKER@ -- -x", python=False,
          only=("torchrun", "link")),
    alone("double_dash_later", "--nproc-per-node 2 @WORKER@ a -- -x --"),
    alone("templates", "--nproc-per-node 2 @WORKER@ ${local_rank} a$local_rank.b $local_ranks $HOME $${local_rank} "
          "$$local_rank ${x} $ $1 ${local_rank"),
    alone("templates_of_two_dollars", "--nproc-per-node 2 @WORKER@ $$ $$$ $$x $$$local_rank", only=("torchrun", "link")),
    alone("templates_without_python", "--nproc-per-node 2 --no-python @WORKER@ out/${local_rank}", python=False),
    case("launch", "--nproc-per-node 2 --master-port @PORT@ @WORKER@ a", module="launch",
         ours="--nproc-per-node 2 --master-port @PORT@ --local-rank-arg=--local-rank @WORKER@ a"),
    case("launch_a_module", "--nproc-per-node 2 --master-port @PORT@ -m dump a", module="launch",
         ours="--nproc-per-node 2 --master-port @PORT@ --local-rank-arg=--local-rank -m dump a", env={"PYTHONPATH": HERE}),
    case("launch_with_environment", "--use-env --nproc-per-node 2 --master-port @PORT@ @WORKER@ a", module="launch"),
    # ends
    alone("a_program_is_for_python_under_its_name", "--nproc-per-node 2 /bin/sh -c true", ranks=0, status=(1, 1, 0)),
    alone("a_rank_fails", "--nproc-per-node 2 @WORKER@", env={"DUMP_END": "1:3"}, status=(1, 1, 3)),
    alone("a_rank_is_killed", "--nproc-per-node 2 @WORKER@", env={"DUMP_END": "0:-9"}, status=(1, 1, 137)),
    alone("no_such_program", "--no-python @DIR@/missing", ranks=0, status=(1, 1, 127)),
    # refusals
    case("no_program", "", **REFUSED),
    case("unknown_option", "--nonsense @WORKER@", **REFUSED),
    case("option_without_value", "--nproc-per-node", **REFUSED),
    case("flag_with_value", "--standalone=1 @WORKER@", **REFUSED),
    case("unknown_choice", "--start-method thread @WORKER@", **REFUSED),
    case("ambiguous_prefix", "--rdzv x @WORKER@", **REFUSED),
    case("words_for_a_number", "--max-restarts many @WORKER@", **REFUSED),
    case("no_ranks", "--nproc-per-node 0 @WORKER@", ranks=0, status=(1, 2, 2)),
    case("nodes_backwards", "--nnodes 2:1 @WORKER@", ranks=0, status=(1, 2, 2)),
    case("module_and_no_python", "-m --no-python dump", ranks=0, status=(1, 2, 2)),
    case("help", "--help", ranks=0),
]


def logged(name, words, **more):
    """Two ranks, whose output goes to log files in part; on demand where to."""
    if "@LOGS@" not in words and not more.pop("anywhere", False):
        words = "--log-dir @LOGS@ " + words
    return alone(name, f"--nproc-per-node {more.get('ranks', 2)} {words} @WORKER@", logs=True, **more)


CASES += [
    # log files: where
    logged("log_dir_alone", ""),
    logged("log_dir_with_parents", "--log_dir @LOGS@/a/b -r 3"),
    logged("log_dir_of_this_folder", "--log-dir ./logs/a -r 1", anywhere=True,
           unlike={"TORCHELASTIC_ERROR_FILE": (r"\./logs/a/.+/error\.json",) + (r"LOGS/a/JOB/.+/error\.json",) * 2}),
    logged("log_dir_in_the_environment", "", anywhere=True, env={"PET_LOG_DIR": "@LOGS@", "PET_REDIRECTS": "1", "PET_TEE": "0:2"}),
    logged("redirects_to_a_new_folder", "-r 3", anywhere=True),
    logged("tee_to_a_new_folder", "-t 1", anywhere=True),
    logged("log_dir_of_a_named_job", "--rdzv-id job-9 -r 1",
           unlike={"TORCHELASTIC_RUN_ID": (RANDOM_ID, "job-9", "job-9")}),
    case("log_dir_of_a_nameless_job", "--nproc-per-node 2 --master-port @PORT@ --log-dir @LOGS@ -r 3 @WORKER@", logs=True),
    case("log_dir_of_one_rank", "--log-dir @LOGS@ -t 3 @WORKER@", ranks=1, logs=True),
    alone("log_dir_of_a_program", "--nproc-per-node 2 --log-dir @LOGS@ -t 3 --no-python @WORKER@ a", python=False, logs=True),
    alone("log_dir_of_a_module", "--nproc-per-node 2 --log-dir @LOGS@ -r 3 -m dump a", env={"PYTHONPATH": HERE}, logs=True),
    case("log_dir_of_launch", "--use-env --nproc-per-node 2 --master-port @PORT@ --log-dir @LOGS@ -t 3 @WORKER@", module="launch",
         logs=True),
    alone("log_dir_null_and_tee", "--nproc-per-node 2 --log-dir /dev/null -t 3 @WORKER@",
          unlike={"TORCHELASTIC_ERROR_FILE": ("",) + (r"runtime/ddprun-\w+/[0-9]+\.json",) * 2}),
    alone("log_dir_null_and_redirects", "--nproc-per-node 2 --log-dir /dev/null -r 3 --local-ranks-filter 0 @WORKER@",
          unlike={"TORCHELASTIC_ERROR_FILE": ("",) + (r"runtime/ddprun-\w+/[0-9]+\.json",) * 2}),
    alone("log_dir_is_a_file", "--log-dir @WORKER@ @WORKER@", ranks=0, status=(1, 1, 70)),
    # log files: which
    logged("redirects_none", "-r 0"),
    logged("redirects_stdout", "-r 1"),
    logged("redirects_stderr", "-r 2"),
    logged("redirects_both", "--redirects 3"),
    logged("tee_none", "-t 0"),
    logged("tee_stdout", "-t 1"),
    logged("tee_stderr", "-t 2"),
    logged("tee_both", "--tee=3"),
    logged("redirects_by_rank", "-r 0:1,1:2"),
    logged("redirects_of_one_rank", "-r 1:3"),
    logged("redirects_of_a_rank_there_is_not", "-r 0:3,7:3"),
    logged("redirects_of_a_rank_twice", "-r 0:3,0:1"),
    logged("tee_by_rank", "-t 0:1,1:2"),
    logged("tee_of_one_rank_of_four", "-t 1:1,3:2", ranks=4),
    logged("redirects_and_tee_of_other_streams", "-r 1 -t 2"),
    logged("redirects_and_tee_of_the_same", "-r 3 -t 1"),
    logged("redirects_and_tee_by_rank", "-r 0:3 -t 1:3"),
    logged("ranks_of_two_digits", "-t 3", ranks=11),
    logged("redirects_of_rank_10", "-r 10:3", ranks=11, only=("link", "ddprun")),  # torchrun takes no two digits
    alone("redirects_above_3", "--log-dir @DIR@/none -r 4 @WORKER@", ranks=0, status=(1, 2, 2)),
    alone("tee_of_a_broken_list", "--log-dir @DIR@/none -t 0:1, @WORKER@", ranks=0, status=(1, 2, 2)),
    # what is shown
    logged("ranks_filter_and_tee", "-t 3 --local-ranks-filter 0"),
    logged("ranks_filter_and_redirects", "-r 1 --local-ranks-filter 1"),
    logged("ranks_filter_alone", "--local_ranks_filter 1"),
    logged("ranks_filter_of_several", "-t 0:3,2:1 --local-ranks-filter 0,1", ranks=3),
    logged("ranks_filter_of_nobody_there", "-t 3 --local-ranks-filter 5"),
    logged("role_in_the_prefix", "-t 3 --role trainer"),
    logged("prefix_of_the_environment", "-t 1", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
                                                     "${role_name}.${rank}/$local_rank $other $$ "}),
    logged("prefix_of_an_option", "-t 3 --log-line-prefix-template ${hostname}:${rank}:", since="2.15"),
    logged("prefix_of_an_option_in_the_environment", "-t 1 --role r", since="2.15",
           env={"PET_LOG_LINE_PREFIX_TEMPLATE": "<${role_name}>", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "no"}),
    logged("filter_of_stdout", "-t 3 --duplicate-stdout-filters loss"),
    logged("filter_of_stderr", "-t 3 --duplicate-stderr-filters bye,hello"),
    logged("filters_of_both", "-t 3 --duplicate-stdout-filters bye --duplicate-stderr-filters nothing"),
    logged("filter_with_a_comma", "-t 1 --duplicate-stdout-filters 0.5,,"),
    logged("filter_of_a_rank", "-t 1:3 --duplicate-stdout-filters loss"),
    logged("filter_and_ranks_filter", "-t 3 --duplicate-stdout-filters loss --local-ranks-filter 1"),
    logged("filter_without_tee", "-r 3 --duplicate-stdout-filters loss --duplicate-stderr-filters loss"),
    # what is in them
    logged("last_line_without_newline", "-r 3", env={"DUMP_TAIL": "not over"}),
    logged("last_line_without_newline_and_tee", "-t 3", env={"DUMP_TAIL": "not over"}, console=False),
    logged("bytes_that_are_no_text", "-r 3", env={"DUMP_TAIL": r"\xff\x00\r\n"}),
    logged("bytes_that_are_no_text_and_tee", "-t 3", env={"DUMP_TAIL": r"\xff\x00\r\n"}, console=False),
    logged("error_file_of_a_rank", "-r 3", env={"DUMP_END": "1:3", "DUMP_ERROR": ERROR}, status=(1, 1, 3)),
    logged("error_file_of_the_launcher", "-r 3", env={"DUMP_END": "1:3", "DUMP_ERROR": ERROR,
                                                      "TORCHELASTIC_ERROR_FILE": "@LOGS@/launcher.json"}, status=(1, 1, 3)),
    logged("error_file_of_the_launcher_after_a_signal", "-r 3", env={"DUMP_END": "1:-9", "TORCHELASTIC_ERROR_FILE":
                                                                     "@LOGS@/launcher.json"}, status=(1, 1, 137),
           more=("LOGS/launcher.json",)),
    logged("restarts_and_tee", "-t 3 --max-restarts 2", env={"DUMP_END": "1:3"}, status=(1, 1, 3), generations=3),
    logged("restarts_and_redirects", "-r 0:3,1:1 --max-restarts 1", env={"DUMP_END": "0:-9"}, status=(1, 1, 137), generations=2),
    logged("restarts_and_filter", "-t 3 --max-restarts 1 --duplicate-stdout-filters loss", env={"DUMP_END": "1:3"},
           status=(1, 1, 3), generations=2),
    logged("restarts_and_error_files", "-r 2 --max-restarts 1 --local-ranks-filter 0", env={"DUMP_END": "1:3", "DUMP_ERROR": ERROR},
           status=(1, 1, 3), generations=2),
]
