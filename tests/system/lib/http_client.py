"""Requests to the pages of --http."""
import contextlib
import http.client
import re

from harness import DEADLINE_S


def port_of(job):
    """Where a job serves that was started with --http 0; waits for its message."""
    job.read_until("ddprun: note: serving http://")
    job.read_until("/\n")
    return int(re.search(rb"serving http://[^/]*:(\d+)/\n", job.said)[1])


def get(port, path, host="127.0.0.1", headers=None, method="GET"):
    """-> status, type, body"""
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
