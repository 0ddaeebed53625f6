"""The server of the playground: training, errors, and rejection of requests from other origins."""

import json
import re
import subprocess
import sys
import threading
from http.client import HTTPConnection

import pytest

from mytorch.playground.__main__ import main
from mytorch.playground.server import serve
from mytorch.playground.session import Session

pytestmark = pytest.mark.cpu_only  # it trains there


@pytest.fixture(scope="module")
def server():
    server = serve(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, method, path, body=None, **headers):
    """(status, content type, body) of a request."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def test_a_network_is_made_and_trained_until_it_separates_the_classes(server):
    status, kind, page = ask(server, "GET", "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    used = set(re.findall(r'\$\("(\w+)"\)', page))
    assert used <= set(re.findall(r' id="(\w+)"', page))  # all elements of the script are on the page
    state = json.loads(ask(server, "POST", "/new", {"data": "xor", "points": 60, "hidden": [8], "lr": 0.1})[2])
    assert (state["step"], state["loss"], len(state["points"])) == (0, None, 60)
    assert [len(layer) for layer in state["units"]] == [8]
    assert len(state["answers"]) == state["side"] ** 2
    assert len(state["units"][0][0]) == state["small"] ** 2
    assert state["gradients"] == [None, None]
    assert all(state["settings"][name] in state["choices"][name] for name in ("data", "activation", "optimizer"))
    assert (state["choices"]["layers"], state["choices"]["units"]) == (5, 12)  # where the page's + ends
    for _ in range(2):
        state = json.loads(ask(server, "POST", "/train", {"steps": 100})[2])
    assert (state["step"], state["accuracy"]) == (200, 1.0)
    assert state["losses"][0] > state["losses"][-1] == round(state["loss"], 4)
    assert len(state["gradients"][0]) == 8
    before = json.loads(ask(server, "GET", "/state")[2])
    status, kind, svg = ask(server, "GET", "/graph.svg")
    assert (status, kind) == (200, "image/svg+xml; charset=utf-8")
    assert svg.startswith("<svg")
    assert "|grad|" in svg
    assert json.loads(ask(server, "GET", "/state")[2]) == before  # drawing changes nothing


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("GET", "/nowhere", None, 404, "does not exist"),
        ("GET", "/train", None, 405, "GET /train"),
        ("POST", "/state", {}, 405, "POST /state"),
        ("POST", "/train", b"{", 400, "expected JSON"),
        ("POST", "/train", b"\xff", 400, "expected JSON"),
        ("POST", "/train", b"[" * 9000, 400, "expected JSON"),
        ("POST", "/train", [1], 400, "expected a JSON object, got list"),
        ("POST", "/train", {"steps": 0}, 400, "steps: expected an integer from 1 to 200, got 0"),
        ("POST", "/train", {"steps": True}, 400, "got True"),
        ("POST", "/train", {"stops": 1}, 400, "train: expected steps, got stops"),
        ("POST", "/new", {"data": "cube"}, 400, "data: expected one of simple"),
        ("POST", "/new", {"data": ["xor"]}, 400, "got ['xor']"),
        ("POST", "/new", {"hidden": [4, 99]}, 400, "units of a layer: expected an integer from 1 to 12, got 99"),
        ("POST", "/new", {"hidden": [1] * 6}, 400, "at most 5 layers"),
        ("POST", "/new", {"lr": float("nan")}, 400, "got nan"),
        ("POST", "/new", {"seed": -1}, 400, "got -1"),
        ("POST", "/new", {"width": 3}, 400, "got width"),
        ("POST", "/new", b" " * 10_001, 413, "at most 10000"),
    ],
)
def test_bad_requests_are_answered_with_a_sentence(server, method, path, body, status, sentence):
    found, kind, text = ask(server, method, path, body)
    assert (found, kind) == (status, "application/json; charset=utf-8")
    assert sentence in json.loads(text)["error"]
    assert ask(server, "GET", "/state")[0] == 200


def test_pages_of_other_sites_are_refused(server):
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "GET", "/state", Host="evil.example")[0] == 403
    assert ask(server, "POST", "/new", {}, Origin="https://evil.example")[0] == 403
    own = server.url.rstrip("/")
    assert ask(server, "POST", "/new", {}, Origin=own)[0] == 200


def test_a_loss_that_runs_away_is_still_json(server):
    ask(server, "POST", "/new", {"optimizer": "sgd", "activation": "relu", "lr": 10, "hidden": [12] * 5, "points": 10})
    server.session.losses.append(float("inf"))
    status, _, text = ask(server, "POST", "/train", {})
    assert status == 200
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_equal_settings_give_equal_networks():
    a, b = Session({"hidden": [], "points": 11}), Session({"hidden": [], "points": 11})
    a.train(2), b.train(2)
    assert a.state() == b.state()
    assert len(a.all_points()) == 10


def test_it_is_not_part_of_the_import(tmp_path):
    code = "import sys, mytorch; print([m for m in sys.modules if m.startswith(('mytorch.playground', 'http.server'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_wrong_flag_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--prot", "1"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "python -m mytorch.playground: unrecognized arguments: --prot 1; see --help.\n"
