#!/bin/sh
# Includes point one way (CONTRIBUTING.md, "Rooms"), and each header compiles alone.
#   includes.sh SOURCE_ROOT [CC]
set -eu
cd "$1"
cc=${2:-cc}
bad=0

# room, then what it may include beside its own files and libc
check() {
    room=$1
    shift
    for file in "$room"/*.[ch]; do
        [ -e "$file" ] || continue
        includes=$(sed -n 's/^#include ["<]\([a-z-]*\/[^">]*\)[">].*/\1/p' "$file")
        for inc in $includes; do
            case "$inc" in
            sys/* | linux/* | netinet/* | arpa/* | net/* | uv/* | asm/*) continue ;;
            esac
            ok=no
            for allowed in "$@"; do
                # shellcheck disable=SC2254 # a pattern is what it is
                case "$inc" in
                $allowed) ok=yes ;;
                esac
            done
            if [ $ok = no ]; then
                echo "$file includes $inc, which $room may not"
                bad=1
            fi
        done
    done
}
check include/ddp 'ddp/*'
check common
check segments 'common/*'
check console 'common/*'
check rendezvous 'common/*'
check etcd 'common/*' 'curl/*'
check launcher 'ddp/*' 'common/*' 'segments/*' 'console/*' 'rendezvous/server.h' 'etcd/elector.h' 'etcd/etcd_plugin.h' \
    'rendezvous/address.h' 'rendezvous/allow.h' 'rendezvous/control_link.h' 'rendezvous/control_wire.h' 'rendezvous/jobs.h' 'rendezvous/jobs_page.h' 'rendezvous/resolve.h' \
    'rendezvous/seal.h' 'rendezvous/token.h' 'rendezvous/pmi1_client.h' 'rendezvous/pmi1_server.h' 'rendezvous/wire.h' \
    'rendezvous/restart_policy.h' 'rendezvous/message.h' 'rendezvous/lease.h' 'rendezvous/member.h' 'rendezvous/roster.h'
check daemon 'common/*' 'rendezvous/server.h' 'rendezvous/stats.h' 'rendezvous/allow.h' 'rendezvous/address.h' \
    'rendezvous/jobs.h' 'rendezvous/jobs_page.h' 'rendezvous/seal.h' 'rendezvous/token.h'
check ctl 'common/*' 'console/*' 'rendezvous/address.h' 'rendezvous/client.h' 'rendezvous/seal.h' 'rendezvous/token.h' \
    'launcher/cli_world.h' 'launcher/host_list.h' 'launcher/managers.h' 'launcher/muster.h' 'launcher/resources.h' 'launcher/slurm.h' 'launcher/way.h'
check worker-runtime 'ddp/*' 'common/*' 'segments/*' 'rendezvous/client.h' 'rendezvous/pmi1_client.h' 'rendezvous/session.h'
check nccl 'ddp/*' 'common/*' 'worker-runtime/device_layer.h' 'worker-runtime/device_plugin.h' 'worker-runtime/finite.h' 'worker-runtime/half.h'
check examples 'ddp/*'
check completion 'common/*' 'ctl/ctl_table.h' 'daemon/daemon_cli.h' 'launcher/cli_table.h' 'perf/perf_cli.h' 'perf/perf_work.h'
check perf 'ddp/*' 'common/*'
check bench 'ddp/*' 'common/*' 'rendezvous/control_conn.h' 'rendezvous/control_wire.h' 'rendezvous/member.h' 'rendezvous/seal.h' \
    'nccl/kernel_math.h' 'worker-runtime/device_plugin.h'

# pure modules: no clock, no files, no sockets, no globals that change
for file in console/job_request.c ctl/check_facts.c ctl/check_gpus.c ctl/check_judge.c ctl/check_plan.c ctl/check_report.c ctl/check_text.c \
    ctl/check_wire.c ctl/ctl_check_cli.c ctl/history.c ctl/history_finish.c ctl/job_text.c ctl/table.c ctl/top_frame.c launcher/supervisor.c launcher/supervisor_facts.c launcher/supervisor_verdict.c launcher/guide.c launcher/cli.c launcher/cli_conf.c launcher/cli_meet.c \
    launcher/cli_nodes.c launcher/cli_terms.c launcher/cli_output.c \
    launcher/host_list.c launcher/cli_programs.c launcher/job_more.c launcher/cli_devices.c launcher/cpu_set.c launcher/placement.c \
    launcher/wrap.c launcher/fold.c launcher/bar.c launcher/lines.c \
    launcher/hang.c launcher/hang_text.c launcher/pace.c launcher/replay.c launcher/stack.c launcher/stack_missing.c launcher/tail.c launcher/wait_line.c \
    launcher/endpoint_host.c launcher/status_json.c segments/call_kind.c \
    launcher/cli_hosts.c launcher/cli_managers.c launcher/cli_mpi.c launcher/elf_needs.c launcher/etcd_record.c launcher/managers.c launcher/leash_wire.c launcher/muster.c launcher/pmi_seat_wire.c launcher/remote_env.c \
    launcher/remote_spec.c launcher/slurm.c \
    launcher/oom.c launcher/oom_log.c launcher/oom_text.c launcher/output_spec.c launcher/rank_argv.c \
    launcher/worker_env.c rendezvous/store.c rendezvous/codec.c rendezvous/session.c \
    rendezvous/control_wire.c rendezvous/lease.c rendezvous/member.c rendezvous/member_input.c \
    rendezvous/restart_policy.c rendezvous/roster.c rendezvous/roster_input.c \
    rendezvous/roster_index.c rendezvous/roster_nodes.c rendezvous/roster_order.c rendezvous/roster_past.c rendezvous/roster_tell.c rendezvous/seal.c \
    rendezvous/pmi1_server.c rendezvous/pmi1_wire.c \
    rendezvous/protocol.c rendezvous/http.c rendezvous/page.c rendezvous/stats.c rendezvous/allow.c daemon/daemon_cli.c \
    etcd/base64.c etcd/elector.c etcd/elector_input.c etcd/etcd_wire.c \
    worker-runtime/bucket_plan.c worker-runtime/cpu_tuning.c worker-runtime/data_format.c worker-runtime/randperm.c worker-runtime/safetensors_header.c worker-runtime/utf8.c \
    nccl/life.c worker-runtime/device_plan.c worker-runtime/call.c worker-runtime/commit.c worker-runtime/env.c worker-runtime/first_failure.c worker-runtime/layout.c \
    worker-runtime/moments.c worker-runtime/net_cause.c worker-runtime/net_map.c worker-runtime/net_math.c worker-runtime/optimizer.c worker-runtime/place.c \
    worker-runtime/progress_line.c worker-runtime/ready.c worker-runtime/safetensors_types.c worker-runtime/sampler_plan.c \
    perf/perf_cli.c perf/perf_crossover.c perf/perf_text.c perf/perf_values.c perf/perf_work.c; do
    [ -e "$file" ] || continue
    if grep -nE '^#include <(uv|sys/socket|fcntl|time|sys/mman|poll|signal)\.h>' "$file"; then
        echo "$file is to be pure, but includes what touches the world"
        bad=1
    fi
done

for header in include/ddp/*.h common/*.h segments/*.h console/*.h rendezvous/*.h etcd/*.h launcher/*.h daemon/*.h ctl/*.h worker-runtime/*.h nccl/life.h nccl/hand.h nccl/kernel_clip.h nccl/kernel_math.h nccl/kernel_moments.h perf/*.h \
    examples/*.h; do
    [ -e "$header" ] || continue
    ! grep -q '^#include <cuda' "$header" || continue # compiled where there is CUDA
    if ! echo "#include \"$header\"" |
        $cc -x c -std=gnu17 -D_GNU_SOURCE -I. -Iinclude -Wall -Wextra -Werror -Wno-unused-function \
            -fsyntax-only -; then
        echo "$header does not compile alone"
        bad=1
    fi
done
for header in include/ddp/*.h; do # users may have C11 without GNU, or C++
    if ! printf "#include \"%s\"\nint x;\n" "$header" | $cc -x c -std=c11 -pedantic -Iinclude -Wall -Wextra -Werror -fsyntax-only -; then
        echo "$header is not plain C11"
        bad=1
    fi
done
exit $bad
