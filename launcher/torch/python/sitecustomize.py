"""What each Python of a job with --worker-server runs first, out of the archive that ddprun has put in front of PYTHONPATH.

It waits until the process has imported torch.distributed, then starts torch's worker server at a Unix socket that ddprun asks for stacks
and the flight recorder. Then it imports the sitecustomize that it has hidden, if one exists. sys.path and the modules show no trace of it; the
environment does until then, for programs that start the script in another process.
"""


def hide(archive):
    """From the children of a process that has a server."""
    import os
    env = os.environb
    env.pop(b"DDP_WORKER_SERVER", None)
    first, colon, own = env.get(b"PYTHONPATH", b"").partition(b":")
    if first != os.fsencode(archive):
        return
    if colon:
        env[b"PYTHONPATH"] = own
    else:
        del env[b"PYTHONPATH"]


def start(archive, folder):
    """In the process that has just imported torch.distributed."""
    import os
    hide(archive)
    try:
        from torch._C._distributed_c10d import _WorkerServer
    except ImportError:  # torch 2.3 or older
        return
    path = os.path.join(folder, "torch.%d" % os.getpid())
    try:
        if os.path.exists(path):
            os.unlink(path)  # of a process that had this number before
        keep(quietly(lambda: _WorkerServer(path)))
    except Exception:  # whatever it is: the script does not need the server
        pass


def keep(server):
    """For good: in a forked process, which has no thread of the server, its destructor would wait for one."""
    import ctypes
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def quietly(begin):
    """torch reports on stderr where the server listens. All else that is written there meanwhile is passed on."""
    import os
    kept = os.dup(2)
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    try:
        os.dup2(theirs, 2)
        os.close(theirs)
        return begin()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.set_blocking(ours, False)
        try:
            text = os.read(ours, 65536)
        except BlockingIOError:
            text = b""
        os.close(ours)
        for line in text.splitlines(True):
            if b"Server listening to UNIX" not in line:
                os.write(2, line)


class Finder:
    """Finds nothing, but lets the module that others find call start() when it has been loaded."""
    NAME = "torch.distributed.distributed_c10d"

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != cls.NAME:
            return None
        import sys
        sys.meta_path.remove(cls)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                cls.add_start(spec.loader)
                return spec
        return None

    @classmethod
    def add_start(cls, loader):
        load, archive, folder = loader.exec_module, cls.archive, cls.folder

        def exec_module(module):
            load(module)
            start(archive, folder)

        loader.exec_module = exec_module


def begin():
    import os
    import sys
    import zipimport
    archive = __file__.rpartition("/")[0]
    folder = os.environ.get("DDP_WORKER_SERVER")
    if folder:
        Finder.archive, Finder.folder = archive, folder
        sys.meta_path.insert(0, Finder)
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
    zipimport._zip_directory_cache.pop(archive, None)
    del sys.modules["sitecustomize"]


begin()
del begin
import sitecustomize  # noqa: E402,F401 (which we have replaced; the caller handles its absence)
