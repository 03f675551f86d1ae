# common.sh - sourced by the tests of this directory.
#
#   TEST.sh --mnist PROGRAM --double PROGRAM --chargpt PROGRAM --chargpt-double PROGRAM --hello PROGRAM
#       --reinforce PROGRAM --dataparallel PROGRAM --bench-1-vs-n PROGRAM [--launcher DDPRUN]
#
# Without a launcher, the script starts the ranks itself, as a shell script of a user does.
set -u

launcher=
while [ $# -ge 2 ]; do
    case $1 in
    --mnist) mnist=$2 ;;
    --double) mnist_double=$2 ;;
    --chargpt) chargpt=$2 ;;
    --chargpt-double) chargpt_double=$2 ;;
    --hello) hello=$2 ;;
    --reinforce) reinforce=$2 ;;
    --dataparallel) dataparallel=$2 ;;
    --bench-1-vs-n) bench_1_vs_n=$2 ;;
    --launcher) launcher=$2 ;;
    *) echo "unknown argument $1" >&2 && exit 99 ;;
    esac
    shift 2
done

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' INT TERM
# Only the tests set the number of ranks.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE DDP_NODE_FD DDP_JOB_ID MASTER_ADDR MASTER_PORT

# start N PROGRAM ARG...: run the program on N ranks; the status is 0 if all of theirs were.
start() {
    n=$1
    shift
    if [ "$n" = alone ]; then
        "$@"
    elif [ -n "$launcher" ]; then
        "$launcher" -n "$n" "$@"
    else
        start_by_hand "$n" "$@"
    fi
}

start_by_hand() {
    n=$1 pids= bad=0
    shift
    for rank in $(seq 0 $((n - 1))); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n DDP_JOB_ID=$work \
            OMP_NUM_THREADS=1 "$@" &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || bad=$?
    done
    return $bad
}

n_failed=0
# check WHAT STATUS: report one result.
check() {
    if [ "$2" -eq 0 ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1"
        n_failed=$((n_failed + 1))
    fi
}

# below NUMBER BOUND
below() {
    awk -v x="$1" -v bound="$2" 'BEGIN { exit !(x != "none" && x + 0 < bound + 0) }'
}

# The last accuracy that a training printed, in hundredths of a percent.
last_accuracy() {
    sed -n 's/.*test accuracy \([0-9]*\)\.\([0-9][0-9]\) %.*/\1\2/p' "$1" | tail -n 1
}

finish() {
    [ "$n_failed" -eq 0 ] && exit 0
    exit 1
}
