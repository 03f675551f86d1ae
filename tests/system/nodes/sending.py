"""ddprun-static, and that -H sends it to hosts that have no ddprun: real sshds in namespaces, each with its own files where it counts.

Covers: launcher/remote, launcher/platform
"""
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, main
from ssh_hosts import SshHosts, SshJob, stand_in

STATIC = os.path.abspath(os.environ["DDPRUN_STATIC"])
PROGRAM = os.path.abspath(DDPRUN)
SHOW = ("sh", "-c", "echo $RANK/$WORLD_SIZE $(hostname) > $TEST_FIFO")
# A mock of an installed ddprun of another version: its terms do not match, and it must not be started.
OTHER = '#!/bin/sh\n[ "$1" = --launch-terms ] && echo 0.0.9/1/1 || echo started all the same\n'


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def write(path, content):
    with open(path, "wb") as f:
        f.write(content)


def found(folder):
    """All files below a directory."""
    return sorted(os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)


class Alone(unittest.TestCase):
    """In a root of its own, where there is nothing else: no C library, no shell."""

    def setUp(self):
        why = "only root can enter another root directory" if os.geteuid() != 0 else lacks_namespaces("--mount", "--net")
        if why:
            self.skipTest(why)
        self.root = tempfile.mkdtemp(prefix="ddprun-alone-")
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("dev", "etc", "proc", "tmp"):
            os.mkdir(os.path.join(self.root, name))
        shutil.copy(STATIC, os.path.join(self.root, "ddprun"))

    def write(self, name, text):
        with open(os.path.join(self.root, "etc", name), "w", encoding="utf-8") as f:
            f.write(text)

    def run_there(self, *words):
        enter = 'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", f"ip link set lo up && {enter}", self.root, *words],
                              env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_it_needs_no_file_of_its_host(self):
        code, out, err = self.run_there("/ddprun", "-n", "2", "/ddprun", "--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^(ddprun \S+\n)\1$")

    def test_the_static_program_resolves_names_from_files(self):
        self.write("hosts", "127.0.0.1 localhost meeting\n")
        self.write("nsswitch.conf", "hosts: resolve [!UNAVAIL=return] myhostname\n")
        words = ("/ddprun", "--nnodes", "1:2", "--join-window", "0", "--rdzv-id", "j", "--rdzv-backend", "c10d", "--rdzv-endpoint")
        code, out, err = self.run_there(*words, "meeting:29400", "--start-timeout", "60", "/ddprun", "--version")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"^ddprun \S+\n$")
        code, out, err = self.run_there(*words, "elsewhere:29400", "--start-timeout", "0.2", "/ddprun", "--version")
        self.assertEqual((code, out), (69, ""))
        self.assertIn("elsewhere", err)

    def test_an_unsupported_option_is_reported(self):
        code, out, err = self.run_there("/ddprun", "--bind-to", "core", "/ddprun", "--version")
        self.assertNotEqual(code, 0)
        self.assertEqual(out, "")
        self.assertEqual(err, "ddprun: error: --bind-to core: cannot load libhwloc.so.15: this is ddprun-static, "
                         "which does not load libraries; use an installed ddprun; install hwloc 2\n")


class Sender(SshJob):
    def __init__(self, hosts, *args, env=None):
        super().__init__(hosts, PROGRAM, *args, env={"DDP_PLUGIN_DIR": os.path.dirname(STATIC), **(env or {})})


class Sent(unittest.TestCase):
    """n1 has ddprun. n2 does not. n3 has another version, and a cache that does not allow execution. n4 has neither ddprun nor a
    directory that allows execution."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="sending-")
        other = os.path.join(cls.dir, "other")
        with open(other, "w", encoding="utf-8") as f:
            f.write(OTHER)
        os.chmod(other, 0o755)
        cls.caches, variables = [], {}
        for i in range(4):
            for name in ("cache", "tmp"):
                os.makedirs(os.path.join(cls.dir, str(i), name))
            cls.caches.append(os.path.join(cls.dir, str(i), "cache"))
            variables[i] = [f"XDG_CACHE_HOME={cls.dir}/{i}/cache", f"TMPDIR={cls.dir}/{i}/tmp"]
        hide = f"mount --bind {{}} {shlex.quote(PROGRAM)}"
        shut = f"mount -t tmpfs -o noexec none {cls.dir}/{{}}"
        mounts = {1: hide.format("/dev/null"),
                  2: f"{hide.format(other)} && {shut.format('2/cache')}",
                  3: f"{hide.format('/dev/null')} && {shut.format('3')}"}
        try:
            cls.hosts = SshHosts(4, mounts=mounts, variables=variables)
        except unittest.SkipTest:
            shutil.rmtree(cls.dir)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.hosts.close()
        shutil.rmtree(cls.dir)

    def tearDown(self):
        for i in range(4):  # what is mounted there stays
            for name in ("cache", "tmp"):
                for entry in os.scandir(os.path.join(self.dir, str(i), name)):
                    shutil.rmtree(entry.path)

    def finish(self, *words, env=None):
        with Sender(self.hosts, *words, env=env) as job:
            return job.finish()

    def expect_two_ranks(self, *words):
        with Sender(self.hosts, "-v", *words, *SHOW) as job:
            code, _, err = job.finish()
            self.assertEqual(code, 0, err)
            return job.hear(2), err.count(": sending ddprun ")

    def test_a_host_without_ddprun_joins_with_the_payload(self):
        with Sender(self.hosts, "-H", "n1,n2", RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            paths = found(self.caches[1])
            self.assertEqual([digest(path) for path in paths], [digest(STATIC)])
            programs = [os.readlink(f"/proc/{self.hosts.ddprun(i)}/exe") for i in range(2)]
            self.assertEqual(programs, [PROGRAM, paths[0]])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.finish()[0], -signal.SIGTERM)
        self.assertEqual(found(self.caches[0]), [])
        for path in (paths[0], os.path.dirname(paths[0])):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)

    def test_the_payload_is_sent_again_only_if_it_is_damaged(self):
        self.assertEqual(self.expect_two_ranks("-H", "n1,n2"), (["0/2 n1", "1/2 n2"], 1))
        path = found(self.caches[1])[0]
        before = os.stat(path).st_ino
        self.assertEqual(self.expect_two_ranks("-H", "n1,n2"), (["0/2 n1", "1/2 n2"], 0))
        self.assertEqual(os.stat(path).st_ino, before)
        with open(path, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"?")
        self.assertEqual(self.expect_two_ranks("-H", "n1,n2"), (["0/2 n1", "1/2 n2"], 1))
        self.assertEqual(digest(path), digest(STATIC))

    def test_old_unused_payloads_are_removed_from_the_host(self):
        shelf, now = os.path.join(self.caches[1], "ddprun"), time.time()
        programs = [os.path.join(shelf, f"0.0.{age}-{age:016x}", "ddprun") for age in range(1, 7)]  # days
        for age, program in enumerate(programs, 1):
            os.makedirs(os.path.dirname(program))
            shutil.copy(STATIC, program)
            os.utime(program, (now - 86400 * age - 3600,) * 2)
        os.chmod(shelf, 0o700)
        with Job("-n", "1", RANK, "tell", "up", "wait", launcher=programs[-1]) as oldest:
            oldest.hear(1)
            with Sender(self.hosts, "-H", "n2", RANK, "tell", "up", "wait") as job:
                job.hear(1)
                sent, = set(found(shelf)) - set(programs)
                self.assertEqual(set(found(shelf)), {sent, *programs[:2], programs[-1]})
                self.assertEqual(len(os.listdir(shelf)), 4)
                with open(sent, "rb") as f:  # as a ddprun would on another host that shares the directory
                    self.assertRaises(BlockingIOError, fcntl.flock, f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.finish()[0], -signal.SIGTERM)
            with open(sent, "rb") as f:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.assertEqual(self.expect_two_ranks("-H", "n1,n2"), (["0/2 n1", "1/2 n2"], 0))
        self.assertEqual(set(found(shelf)), {sent, *programs[:2]})

    def test_another_version_or_a_noexec_directory_is_not_used(self):
        self.assertEqual(self.expect_two_ranks("-H", "n3:2"), (["0/2 n3", "1/2 n3"], 1))
        paths = found(os.path.join(self.dir, "2", "tmp"))
        self.assertEqual([digest(path) for path in paths], [digest(STATIC)])
        self.assertRegex(paths[0], rf"/tmp/ddprun-{os.getuid()}/[^/]*/ddprun$")

    def test_if_no_directory_works_all_are_named(self):
        code, out, err = self.finish("-H", "n1,n4", RANK, "tell", "up", "wait")
        self.assertEqual((code, out), (69, ""))
        self.assertRegex(err, rf"^ddprun: error: n4: ddprun of this version is not installed, and no directory can be written to and executed "
                         rf"from: {self.caches[3]}/ddprun .* {self.dir}/3/tmp/ddprun-{os.getuid()}; install ddprun on this host, or set TMPDIR there\n")

    def test_bcast_never_sends_no_payload(self):
        code, out, err = self.finish("--bcast", "never", "-H", "n1,n2", RANK, "tell", "up", "wait")
        self.assertEqual((code, out), (69, ""))
        self.assertRegex(err, rf"^ddprun: error: n2: cannot execute {PROGRAM}: it does not exist, or permission is denied\n")
        self.assertEqual(found(self.caches[1]), [])

    def test_bcast_always_sends_the_payload_to_all_hosts(self):
        self.assertEqual(self.expect_two_ranks("--bcast", "always", "-H", "n1,n2"), (["0/2 n1", "1/2 n2"], 2))
        self.assertEqual([digest(path) for path in found(self.caches[0])], [digest(STATIC)])

    def test_a_missing_payload_matters_only_with_bcast_always(self):
        nowhere = {"DDP_PLUGIN_DIR": self.dir}
        code, _, err = self.finish("-H", "n1", "true", env=nowhere)
        self.assertEqual((code, err), (0, ""))
        code, _, err = self.finish("--bcast", "always", "-H", "n1", "true", env=nowhere)
        self.assertEqual((code, err), (70, f"ddprun: error: cannot read '{self.dir}/ddprun-static': No such file or directory; build ddprun "
                                       "with -Dstatic_program=enabled, or use --bcast never\n"))


    def test_an_unusable_payload_is_reported_and_the_installed_one_runs(self):
        folder = tempfile.mkdtemp(dir=self.dir)
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "ddprun-static")
        env = {"DDP_PLUGIN_DIR": folder}
        with open(STATIC, "rb") as f:
            ours = f.read()
        version = re.search(rb"ddprun-launch-terms ([^\0]+)\0", ours).group(1).decode()
        older = "0" * version.index("/") + version[version.index("/"):]
        useless = ((lambda: os.symlink(path, path), f"cannot read '{path}': Too many levels of symbolic links"),
                   (lambda: write(path, b"#!/bin/sh\n"), f"'{path}' is not a ddprun-static"),
                   (lambda: write(path, b""), f"'{path}' is not a program of 1 to {64 << 20} bytes"),
                   (lambda: write(path, ours.replace(version.encode(), older.encode())),
                    f"'{path}' is ddprun {older}, but this is ddprun {version}; install both from the same build"))
        for make, why in useless:
            with self.subTest(why):
                make()
                note = f"ddprun: warning: cannot send ddprun to hosts: {why}\n"
                self.assertEqual(self.finish("-H", "n1", "true", env=env), (0, "", note))
                code, _, err = self.finish("-H", "n1,n2", "true", env=env)
                self.assertEqual(code, 69)
                self.assertIn(note, err)
                self.assertRegex(err, rf"(?m)^ddprun: error: n2: cannot execute {PROGRAM}: it does not exist, or permission is denied$")
                self.assertEqual(self.finish("--bcast", "always", "-H", "n1,n2", "true", env=env), (70, "", f"ddprun: error: {why}\n"))
                self.assertEqual(self.finish("--bcast", "never", "-H", "n1", "true", env=env), (0, "", ""))
                shown = subprocess.run([DDPRUN, "--dry-run", "-H", "n1", "true"], env={**os.environ, **env}, capture_output=True,
                                       text=True, check=True)
                self.assertEqual(shown.stdout.splitlines()[0], note[len("ddprun: warning: "):-1])
                os.unlink(path)


class Ways(unittest.TestCase):
    """With test doubles of ssh: what goes wrong on the way, and shells that sshd may find there."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sending-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.cache = os.path.join(self.dir, "cache")

    def finish(self, script, *words):
        here = f"export XDG_CACHE_HOME={self.cache} TMPDIR={self.dir} SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n"
        with Job("--ssh-command", stand_in(self.dir, here + script), "--bcast", "always", "-H", "there", *words,
                 env={"DDP_PLUGIN_DIR": os.path.dirname(STATIC)}) as job:
            code, out, err = job.end()
            return code, out.decode(), err.decode()

    def test_every_kind_of_login_shell_takes_the_payload(self):
        for shell in "sh", "dash", "bash", "busybox sh", "ksh", "mksh", "zsh", "tcsh", "csh", "fish":
            if shutil.which(shell.split()[0]) is None:
                continue
            with self.subTest(shell):
                code, out, err = self.finish(f'exec {shell} -c "$2"\n', "echo", "well")
                self.assertEqual((code, out, err), (0, "well\n", ""))
                self.assertEqual([digest(path) for path in found(self.cache)], [digest(STATIC)])
                shutil.rmtree(self.cache)

    def test_an_incomplete_payload_is_not_kept(self):
        code, out, err = self.finish('head -c 100000 | sh -c "$2"\n', "true")
        self.assertEqual((code, out), (69, ""))
        self.assertRegex(err, rf"^ddprun: error: there: the copy of ddprun in {self.cache}/ddprun/\S*/ddprun is incomplete; check the disk space of this host\n")
        self.assertEqual(found(self.cache), [])

    def test_a_host_of_another_architecture_gets_no_payload(self):
        code, _, err = self.finish("echo ddprun-launch wants s390x\nexec cat\n", "true")
        self.assertEqual(code, 69)
        self.assertRegex(err, r"^ddprun: error: there: no ddprun of this version is installed there, and ddprun-static here is for "
                         rf"{os.uname().machine}, not s390x; install ddprun there\n")

    def test_a_host_that_does_not_read_the_payload_times_out(self):
        code, _, err = self.finish(f"echo ddprun-launch wants {os.uname().machine}\nexec sleep 1000\n", "--connect-timeout", "0.3", "true")
        self.assertEqual(code, 69)
        self.assertRegex(err, r"^ddprun: error: there: timed out after 0.30 s waiting for ssh and ddprun to answer \(--connect-timeout\)\n")

    def test_a_second_request_for_the_payload_is_an_error(self):
        code, _, err = self.finish(f"echo ddprun-launch wants {os.uname().machine}\nhead -c {os.path.getsize(STATIC)} > /dev/null\n"
                                   f"echo ddprun-launch wants {os.uname().machine}\nexec cat\n", "true")
        self.assertEqual(code, 69)
        self.assertRegex(err, r"^ddprun: error: there: ddprun there has another version; install the same one on all hosts\n")

    def test_a_directory_that_another_user_could_replace_is_not_used(self):
        for name in ("elsewhere", "home"):
            os.mkdir(os.path.join(self.dir, name))
        os.symlink(os.path.join(self.dir, "elsewhere"), os.path.join(self.dir, f"ddprun-{os.getuid()}"))
        code, _, err = self.finish('export XDG_CACHE_HOME=/dev/null\nunset XDG_RUNTIME_DIR\nexec sh -c "$2"\n', "true")
        self.assertEqual(code, 69)
        self.assertRegex(err, r"^ddprun: error: there: ddprun of this version is not installed, and no directory can be written to")
        self.assertEqual(os.listdir(os.path.join(self.dir, "elsewhere")), [])

    def test_a_directory_that_others_can_write_is_not_used(self):
        folder = os.path.join(self.cache, "ddprun")
        os.makedirs(folder)
        for mode, is_taken in (0o702, False), (0o720, False), (0o755, True):
            os.chmod(folder, mode)
            code, _, err = self.finish('unset XDG_RUNTIME_DIR\nexec sh -c "$2"\n', "true")
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(os.listdir(folder) != [], is_taken, oct(mode))

    def test_ranks_have_the_umask_of_the_login_shell(self):
        for _ in "sent", "found":
            code, out, err = self.finish('umask 027\nexec sh -c "$2"\n', "sh", "-c", "umask")
            self.assertEqual((code, int(out, 8), err), (0, 0o027, ""))

    def test_a_payload_from_a_concurrent_start_is_kept(self):
        bin_dir, first = os.path.join(self.dir, "bin"), os.path.join(self.dir, "first")
        os.mkdir(bin_dir)
        head = os.path.join(bin_dir, "head")
        with open(head, "w", encoding="utf-8") as f:  # a test double: another start ends while this one reads
            f.write(f'#!/bin/sh\n{shutil.which("head")} "$@"\n'
                    f'for folder in {self.cache}/ddprun/*; do cp {shlex.quote(STATIC)} $folder/ddprun; ln $folder/ddprun {first}; done\n')
        os.chmod(head, 0o755)
        code, _, err = self.finish(f'export PATH={bin_dir}:$PATH\nexec sh -c "$2"\n', "true")
        self.assertEqual((code, err), (0, ""))
        paths = found(self.cache)
        self.assertEqual(len(paths), 1)
        self.assertTrue(os.path.samefile(paths[0], first))


class Replaceable(unittest.TestCase):
    """A ddprun that another user can replace: the job is that of user 4001, and 4002 owns some of the files."""
    USER, OTHER_USER = 4001, 4002

    def setUp(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("only root with setpriv can become two other users")
        self.dir = tempfile.mkdtemp(prefix="sending-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.cache, self.bin = (os.path.join(self.dir, name) for name in ("cache", "bin"))
        for folder in self.cache, self.bin:
            os.mkdir(folder, 0o755)
        os.chown(self.cache, self.USER, self.USER)
        self.program = shutil.copy(DDPRUN, os.path.join(self.bin, "ddprun"))

    def finish(self, *words, first="", launcher=None):
        """returns exit status, standard error, whether a ddprun was sent"""
        script = (f"export XDG_CACHE_HOME={self.cache} SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'; unset XDG_RUNTIME_DIR; {first}\n"
                  'exec sh -c "$2"\n')
        with Job("--reuid", str(self.USER), "--regid", str(self.USER), "--clear-groups", launcher or self.program, "--ssh-command",
                 stand_in(self.dir, script), *words, "--start-timeout", "20", "-C", "/", "-H", "there", "true",
                 env={"DDP_PLUGIN_DIR": os.path.dirname(STATIC)}, launcher=shutil.which("setpriv")) as job:
            code, _, err = job.end()
        return code, err.decode(), found(self.cache) != []

    def test_what_root_or_the_user_owns_is_executed(self):
        self.assertEqual(self.finish(), (0, "", False))
        for path in self.program, self.bin:
            os.chown(path, self.USER, self.USER)
        os.chmod(self.dir, 0o1777)  # as /tmp
        for way in "auto", "never":
            self.assertEqual(self.finish("--bcast", way), (0, "", False))

    def expect_refusal(self, why):
        warning = f"ddprun: warning: there: {self.program} is not executed: {why}\n"
        for _ in "sent", "found":
            self.assertEqual(self.finish(), (0, warning, True))
        code, err, _ = self.finish("--bcast", "never")
        self.assertEqual((code, err.splitlines()[0]), (69, f"ddprun: error: there: {self.program} is not executed: {why}"))

    def test_what_another_user_owns_is_not_executed(self):
        os.chown(self.program, self.OTHER_USER, self.OTHER_USER)
        self.expect_refusal(f"{self.program} belongs to user {self.OTHER_USER}")

    def test_what_lies_in_a_directory_of_another_user_is_not_executed(self):
        os.chown(self.bin, self.OTHER_USER, self.OTHER_USER)
        self.expect_refusal(f"{self.bin} belongs to user {self.OTHER_USER}")

    def test_what_lies_below_a_directory_that_other_users_can_write_to_is_not_executed(self):
        for mode in 0o757, 0o775:
            os.chmod(self.dir, mode)
            self.expect_refusal(f"other users can write to {self.dir}")
            shutil.rmtree(os.path.join(self.cache, "ddprun"))

    def test_what_another_user_put_into_PATH_is_not_executed(self):
        os.chown(self.program, self.OTHER_USER, self.OTHER_USER)
        hidden = os.path.join(self.dir, "hidden")
        os.mkdir(hidden)
        os.chown(hidden, self.USER, self.USER)
        launcher = shutil.copy(DDPRUN, os.path.join(hidden, "ddprun"))
        why = f"{self.program} is not executed: {self.program} belongs to user {self.OTHER_USER}"
        self.assertEqual(self.finish(first=f"rm {launcher}; export PATH={self.bin}:$PATH", launcher=launcher),
                         (0, f"ddprun: warning: there: {why}\n", True))


if __name__ == "__main__":
    main()
