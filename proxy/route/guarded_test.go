package route

import (
	"errors"
	"strings"
	"testing"
)

func newUnguardedTable() *Table[string] {
	return newTable(
		"send! POST - /v1/send", "search! GET - /v1/Search", "user! - - /u/{id}", "tag! - - /tag/{t:[A-Z]+}/x", "me! - - /u/me", "files! - - /files/*",
		"open - - /files/Public", "any - - /v1/send", "health - - /health", "slashed - - /u/x/", "rest - - /*",
	)
}

// What a careless framework takes for a guarded pattern's path or method is found under
// that one, with the parameters as they were sent; others are found as they are written.
func TestStricter_GuardedPatternsAreFound(t *testing.T) {
	tb := newUnguardedTable()
	for line, want := range map[string]string{
		"POST /v1/send": "send", "POST /V1/send": "send", "POST /v1/SEND/": "send", "post /v1/send": "send", "pOsT /V1/Send/": "send", "POST /v1/%C5%BFend": "send",
		"GET /v1/search": "search", "HEAD /v1/Search": "search", "get /v1/SEARCH": "search",
		"GET /u/alice/": "user id=alice", "GET /U/Alice": "user id=Alice", "GET /TAG/DE/x/": "tag t=DE", "GET /files": "files *=", "GET /Files/a/b/": "files *=a/b/",
		"GET /v1/send": "any", "PUT /v1/send": "any", "GET /files/Public": "open", "GET /Health": "rest *=Health", "GET /u/x/": "slashed", "PUT /V1/SEND": "rest *=V1/SEND", "OPTIONS /v1/Search": "rest *=v1/Search",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if got := strings.TrimSpace(found + " " + params(q)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}

// Where two guarded patterns could be meant, none is guessed, and the one that is
// written so is told of.
func TestStricter_BetweenTwoItRefuses(t *testing.T) {
	if found, err := newUnguardedTable().Find(newRequest("GET", "a", "/u/ME")); !errors.Is(err, ErrTarget) {
		t.Errorf("%q, %v; want ErrTarget", found, err)
	}
	if found, err := newUnguardedTable().FindExact(newRequest("GET", "a", "/u/ME")); found != "user" || err != nil {
		t.Errorf("plainly %q, %v; want user", found, err)
	}
}

// What careful clients send costs no allocation; see BenchmarkMatch for the number of
// entries.
func TestStricter_CostsNoAllocation(t *testing.T) {
	tb := newTable("send! POST - /v1/send", "search! GET - /v1/search", "user! - - /u/{id}", "files! - - /files/*", "any - - /v1/send", "rest - - /*")
	for _, path := range []string{"/v1/send", "/other/thing", "/u/4711", "/files/a/b"} {
		q := newRequest("GET", "a", path)
		if n := testing.AllocsPerRun(100, func() {
			q.Path = path
			if _, err := tb.Find(q); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations; want none", path, n)
		}
	}
}
