"""Flask, behind its own server or behind gunicorn.

    python server.py PORT
    gunicorn server:app
"""
import base64
import json
import sys

from flask import Flask, request

app = Flask(__name__)
# What is no route of the map below must not be redirected to one.
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]


def texts(value):
    """All that a program could take a value for."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [t for v in value.values() for t in texts(v)]
    if isinstance(value, list):
        return [t for v in value for t in texts(v)]
    return [str(value)]


def read(route, phone=None):
    body = request.get_json(silent=True)
    bearer = request.headers.get("Authorization")
    answer = {
        "route": route,
        "method": [request.method],
        "host": texts(request.host),
        "path": texts(phone),
        "header": texts(request.headers.get("X-Phone")),
        "query": request.args.getlist("phone_no"),
        "form": request.form.getlist("phone_no"),
        "params": request.values.getlist("phone_no"),
        "json": texts(body.get("phone_no")) if isinstance(body, dict) else [],
        "cookie": request.cookies.getlist("phone_no"),
        "told": texts(request.headers.get("X-Phone-E164")),
        "counted": texts(request.headers.get("X-Counted")),
        "authorization": texts(bearer),
        "mark": texts(request.headers.get("Idempotency-Key")),
        "cost": request.args.getlist("cost_no"),
        "forwarded": [t for n in ("For", "Host", "Proto") for t in texts(request.headers.get("X-Forwarded-" + n))],
    }
    return "read\n", 200, {"X-Read": base64.b64encode(json.dumps(answer).encode()).decode()}


def add(path, route, methods, **settings):
    app.add_url_rule(path, route, lambda **found: read(route, **found), methods=methods, **settings)


for name in ("header", "form", "json", "cookie", "told", "mark", "pay"):
    add("/v1/" + name, name, ["POST"])
for name in ("query", "token", "cost"):
    add("/v1/" + name, name, ["GET"])
add("/v1/users/<phone>", "users", ["GET"])
add("/v1/any", "any", METHODS, provide_automatic_options=False)


@app.errorhandler(404)
@app.errorhandler(405)
def other(_):
    return read("other")


if __name__ == "__main__":
    app.run("127.0.0.1", int(sys.argv[1]), threaded=True)
