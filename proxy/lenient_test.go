package proxy

import "testing"

// A path that a forgiving server takes for that of a limited route, or for another
// key of its own, is refused; others pass as they are.
func TestLenient_PathsOfOthersAreRefused(t *testing.T) {
	w := made(t, `routes:
  - {name: send, match: {path: /v1/send}, upstream: echo, limits: [{key: global, rate: 100/1h}]}
  - {name: user, match: {path: "/u/{id}"}, upstream: echo, limits: [{key: "path:id", rate: 100/1h}]}
  - {name: file, match: {path: /f/*}, upstream: echo}
  - {name: rest, match: {path: /*}, upstream: echo}
`)
	for path, want := range map[string]int{
		"/v1/send;x=1": 400, "/v1;x/send": 400, "/v1/%2573end": 400, "/v1%C0%AFsend": 400, "/v1/send%20": 400, "/v1/send%23": 400, "/v1/send%3F": 400,
		"/v1/send%253B": 400, "/v1./send": 400, "/v1/send.": 400, "/f/a.": 200, "/%252e%252e/v1/send": 400, "/v1/send%255c": 400,
		"/u/alice": 200, "/u/alice;x": 400, "/u/alice%253Bx": 400, "/u/a%20b": 200, "/u/%2B1": 200, "/u/alice%40example.com": 200,
		"/f/a;b=1": 200, "/f/a%20b.txt": 200, "/f/100%25": 200, "/f/%E4%BD%A0": 200, "/other;x": 200, "/v1/sender;x": 200,
	} {
		if got := w.send("GET", path).Code; got != want {
			t.Errorf("%s is answered %d; want %d", path, got, want)
		}
	}
}
