"""What each Python of a --warm job runs first, out of the archive that ddprun has put in front of PYTHONPATH.

It makes sure that the script finds no trace of it, and does one of three things: reports what a rank imports (learn),
proves that it is loaded, so that it can do the third (probe), or becomes the parent that ranks are forked from. Then it
imports the sitecustomize that it has hidden, if one exists. docs/design/warm.md has the details.
"""


def hide(env):
    """Undo what led here. env is os.environb, or a dict like it; returns the value of DDP_WARM."""
    _, colon, own = env[b"PYTHONPATH"].partition(b":")
    if colon:
        env[b"PYTHONPATH"] = own
    else:
        del env[b"PYTHONPATH"]
    return env.pop(b"DDP_WARM")


def forget(archive):
    import sys
    import zipimport
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
    zipimport._zip_directory_cache.pop(archive, None)
    sys.modules.pop("ddp_warm", None)
    sys.modules.pop("ddp_warm_look", None)
    del sys.modules["sitecustomize"]


def learn(seen, first=None):
    """Append the name of each module that this process imports to a file. Everything it needs later is bound here:
    an import may happen while the interpreter takes itself apart."""
    import os
    import sys

    def on_event(event, args, pid=os.getpid(), getpid=os.getpid, open=os.open, write=os.write, close=os.close,
                 flags=os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW):
        if event != "import" or getpid() != pid:
            return
        try:
            fd = open(seen, flags)
            try:
                write(fd, args[0].encode() + b"\n")  # short, so it is in one piece
            finally:
                close(fd)
        except (OSError, AttributeError, UnicodeError):
            pass  # one module less is known

    if first is not None:
        on_event("import", [first])
    if not hasattr(sys, "addaudithook"):  # before 3.8
        return
    if os.environ.get("LOCAL_RANK", "").isdecimal() and int(os.environ["LOCAL_RANK"]) < 8:  # more would report the same
        sys.addaudithook(on_event)


def begin():
    import os
    archive = __file__.rpartition("/")[0]
    role, seen, rest = hide(os.environb).split(b":", 2)
    if role == b"learn":
        learn(seen)
    else:
        import ddp_warm
        ddp_warm.begin(role, archive, seen, rest, hide, learn)
    forget(archive)


begin()
del begin, forget, learn, hide
import sitecustomize  # noqa: E402,F401 (which we have replaced; the caller handles its absence)
